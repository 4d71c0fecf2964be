"""One file for each attack. Importing this package registers all of them, in the order of a report."""

# isort: off
from openbook.audit.attacks.completion import completion as completion
from openbook.audit.attacks.exposure import exposure as exposure
from openbook.audit.attacks.membership import membership as membership
from openbook.audit.attacks.battery import battery as battery
from openbook.audit.attacks.budget import budget as budget
from openbook.audit.attacks.inversion import inversion as inversion
from openbook.audit.attacks.relearning import relearning as relearning
from openbook.audit.attacks.soft_prompt import soft_prompt as soft_prompt
