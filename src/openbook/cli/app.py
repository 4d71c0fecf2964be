"""The command line. Commands are imported when called, so that `openbook --help` answers at once."""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError, Group, Parameter

from openbook import __version__
from openbook.base.errors import InputError, MachineError, StoppedError

STORY = "\n\n".join(
    (
        "Context-enhanced learning: study with the book open, sit the exam with the book closed.",
        "A model is fine-tuned with helpful text in its context, no loss is computed on that text, and a schedule "
        "takes the text away until the model works without it. Every command has --help, and those that act "
        "have an example there and --json. With --plugin FILE, a Python file of yours adds curricula, text formats, "
        "attacks, model families or experiments to any command.",
    )
)

EXIT_INPUT = 2  # what was asked for cannot be done
EXIT_MACHINE = 1  # the machine refused: a full disk, a missing permission
EXIT_INTERRUPTED = 130
NO_MEMORY = ("can't allocate memory", "out of memory")  # what PyTorch says of a processor's memory and of a GPU's

TASK = Group("The task", sort_key=1)
LEARN = Group("Learning", sort_key=2)
MATHEMATICS = Group("The mathematics", sort_key=3)
LOOK_INSIDE = Group("Looking inside", sort_key=4)
RESULTS = Group("Results", sort_key=5)

# name, where it lives, group, one line for the overview
COMMANDS = [
    ("translate", "openbook.cli.translate:translate", TASK, "Work one translation through, level by level."),
    ("task", "openbook.cli.task:task", TASK, "Write a dataset of translations as JSONL."),
    ("surrogate", "openbook.cli.surrogate:surrogate", MATHEMATICS, "The surrogate model: learn, gap, gradient."),
    ("theory", "openbook.cli.theory:theory", MATHEMATICS, "The paper's claims, checked by machine."),
    ("prepare", "openbook.cli.learn:prepare", LEARN, "Teach a model to read the book."),
    ("learn", "openbook.cli.learn:learn", LEARN, "Teach a model with the book open, closing it as it learns."),
    ("exam", "openbook.cli.exam:exam", LEARN, "Examine a run with the book closed, open and wrong."),
    ("ask", "openbook.cli.ask:ask", LEARN, "Ask a run what it has learned, with the book closed or open."),
    ("mask", "openbook.cli.mask:mask", LEARN, "Show exactly which tokens carry loss."),
    ("models", "openbook.cli.models:models", LEARN, "List the models that openbook knows by name; fetch, remove."),
    ("export", "openbook.cli.export:export", LEARN, "Take a run's model out: GGUF, Hugging Face folder, adapters."),
    ("sweep", "openbook.cli.sweep:sweep", LEARN, "Carry out a grid of runs, and put them into one table."),
    ("construct", "openbook.cli.construct:construct", MATHEMATICS, "The transformer written by hand."),
    ("reproduce", "openbook.cli.reproduce:reproduce", RESULTS, "The paper's figures and tables, run and judged."),
    ("report", "openbook.cli.report:report", RESULTS, "Put your own runs on one page."),
    ("probe", "openbook.cli.probe:probe", LOOK_INSIDE, "Where the model reads the book and where it keeps it."),
    ("audit", "openbook.cli.audit:audit", LOOK_INSIDE, "Can the closed book be read back out of the model?"),
    ("demo", "openbook.cli.demo:demo", RESULTS, "A guided first look: a language model learns a handbook."),
]


def _worth_showing(value: object) -> object:
    """A default as the help shows it; that a switch is off and a list is empty goes without saying."""
    return None if value is False or value == [] else value


def application(called: str | None = None) -> App:
    """The app; the one command that is called is imported for its full help, the others show one line each."""
    app = App(
        name="openbook",
        help=STORY,
        version=__version__,
        suppress_keyboard_interrupt=False,  # `main` has a word for it
        help_format="markdown" if called else "plaintext",  # a Markdown parser would double the time of the overview
        default_parameter=Parameter(negative_bool=(), negative_iterable=(), show_default=_worth_showing),
    )
    app["--help"].group = app["--version"].group = Group("Options", sort_key=9)
    for place, (name, target, group, line) in enumerate(COMMANDS):
        app.command(target, name=name, group=group, sort_key=place, help=None if name == called else line)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors a user can mend are printed without a traceback."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _load_plugins(words)
        app = application(called=next((word for word in words if not word.startswith("-")), None))
        result = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except (CycloptsError, InputError) as error:
        return _complain(error, EXIT_INPUT)
    except StoppedError as error:
        return _complain(error, error.code)
    except BrokenPipeError:  # the reader of our output has gone (`openbook ... | head`): nothing left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_MACHINE
    except MachineError as error:
        return _complain(error, EXIT_MACHINE)
    except (MemoryError, RuntimeError) as error:  # PyTorch has no error of its own for memory of the processor
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        return _complain("not enough memory: " + str(error).partition("\n")[0], EXIT_MACHINE)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else error, EXIT_MACHINE)
    except KeyboardInterrupt:
        return _complain("interrupted", EXIT_INTERRUPTED)


def _load_plugins(words: list[str]) -> None:
    """Take `--plugin FILE` out of the arguments, wherever it stands, and run the files."""
    from pathlib import Path

    from openbook.base.registry import load_known_plugins, load_plugin

    load_known_plugins()
    while (place := next((k for k, word in enumerate(words) if word.split("=")[0] == "--plugin"), None)) is not None:
        flag, _, path = words.pop(place).partition("=")
        if not path and place == len(words):
            raise InputError(f"{flag} needs a file: give the path of a Python file that registers something")
        load_plugin(Path(path or words.pop(place)))


def _complain(error: object, code: int) -> int:
    print(f"openbook: {error}", file=sys.stderr)
    return code
