"""Write docs/schema: `python scripts/make_schemas.py`, after a record of the checklist's documents has changed."""

from pathlib import Path

from day0.report.schemas import schema_files

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, data in schema_files().items():
        (FOLDER / name).write_bytes(data)
