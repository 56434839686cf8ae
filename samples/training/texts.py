"""Natural text: which files are read, and how they are cut into documents.

The texts are not part of the project. `NOTICE` says where each one is had and under which terms; put them as
plain UTF-8 text, one file each, under the names below into a folder, and give that folder as `--corpus`.
"""

import re
from pathlib import Path

STORIES = ("cdla_tinystories.txt", "cdla_tinystories_2.txt")
PROSE = (
    "pd_alice.txt", "pd_looking_glass.txt", "pd_oz.txt", "pd_peter_pan.txt", "pd_pinocchio.txt",
    "pd_just_so.txt", "pd_secret_garden.txt", "pd_willows.txt", "pd_grimm.txt", "pd_andersen_1597.txt",
    "pd_bryant-stories.txt", "pd_burgess-busterbrown.txt",
)  # fmt: skip
FRONT_MATTER = 3000  # characters of title pages and contents left out of every book
CHAPTER = 1600  # characters of a book that make one document


def read_stories(corpus: Path) -> list[str]:
    """TinyStories, one to a document. A story follows a lone line break or begins in a usual way."""
    text = "\n".join((corpus / name).read_text(encoding="utf-8").strip() for name in STORIES)
    stories = re.split(r"(?<!\n)\n(?!\n)|\n\n+(?=Once upon a time|Once there was|One day, a )", text)
    return [re.sub(r"\n\n+", "\n", story).strip() for story in stories if len(story) > 80]


def read_prose(corpus: Path) -> list[str]:
    """Books, cut at paragraph ends into documents of about `CHAPTER` characters."""
    documents = []
    for name in PROSE:
        size, paragraphs = 0, []
        for paragraph in (corpus / name).read_text(encoding="utf-8")[FRONT_MATTER:].splitlines()[1:]:
            paragraphs.append(paragraph.strip())
            size += len(paragraph)
            if size > CHAPTER:
                documents.append("\n".join(paragraphs))
                size, paragraphs = 0, []
    return documents


def missing(corpus: Path) -> list[str]:
    return [name for name in (*STORIES, *PROSE) if not (corpus / name).is_file()]
