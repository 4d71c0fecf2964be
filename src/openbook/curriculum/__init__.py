"""The curriculum: which pieces of the book are open at a position of training, a pure function of (seed, position)."""

from openbook.curriculum.choice import HEADER as HEADER
from openbook.curriculum.choice import Opened as Opened
from openbook.curriculum.choice import choose as choose
from openbook.curriculum.choice import open_fragments as open_fragments
from openbook.curriculum.choice import silenced as silenced
from openbook.curriculum.plan import SamplingPlan as SamplingPlan
from openbook.curriculum.plan import curriculum_for as curriculum_for
from openbook.curriculum.settings import PRESETS as PRESETS
from openbook.curriculum.settings import SPREADS as SPREADS
from openbook.curriculum.settings import Curriculum as Curriculum
from openbook.curriculum.settings import Schedule as Schedule
from openbook.curriculum.settings import curriculum_named as curriculum_named
from openbook.curriculum.settings import expanded as expanded
from openbook.curriculum.settings import preset as preset
from openbook.curriculum.settings import text_settings as text_settings
