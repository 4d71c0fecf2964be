"""openbook: context-enhanced learning of language models.

Study with the book open, sit the exam with the book closed.

    import openbook as ob

    run = ob.learn("handbook.jsonl", model="smollm2-135m", curriculum="anneal", epochs=20)
    run.exam().closed.accuracy

Names are imported when they are first used, so `import openbook` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from openbook.api import Audit as Audit
    from openbook.api import Exam as Exam
    from openbook.api import Run as Run
    from openbook.api import config_for as config_for
    from openbook.api import exam_endpoint as exam_endpoint
    from openbook.api import examine as examine
    from openbook.api import learn as learn
    from openbook.api import load as load
    from openbook.api import mlt as mlt
    from openbook.api import prepare as prepare
    from openbook.api import records as records
    from openbook.api import reproduce as reproduce
    from openbook.book.source import Source as Source
    from openbook.curriculum import Curriculum as Curriculum
    from openbook.curriculum import SamplingPlan as SamplingPlan
    from openbook.training.arguments import CELConfig as CELConfig
    from openbook.training.encode import Encoder as Encoder
    from openbook.training.trainer import CELTrainer as CELTrainer

_API = (
    "Audit",
    "Exam",
    "Run",
    "config_for",
    "exam_endpoint",
    "examine",
    "learn",
    "load",
    "mlt",
    "prepare",
    "records",
    "reproduce",
)
_HOME = dict.fromkeys(_API, "openbook.api") | {
    "CELConfig": "openbook.training.arguments",
    "CELTrainer": "openbook.training.trainer",
    "Curriculum": "openbook.curriculum",
    "Encoder": "openbook.training.encode",
    "SamplingPlan": "openbook.curriculum",
    "Source": "openbook.book.source",
}
__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from openbook.base.errors import nearest

        raise AttributeError(f"openbook has no '{name}'{nearest(name, _HOME)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
