"""Texts that are kept from process to process: under which key they are found, and when not."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from waxeq.backend import kept

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAXEQ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def test_a_text_is_found_under_its_name_and_key_alone() -> None:
    kept.write("name", "key", "text\nof two lines, ümlauts\n")
    assert kept.read("name", "key") == "text\nof two lines, ümlauts\n"
    assert kept.read("name", "another") is None
    assert kept.read("another", "key") is None


def test_the_next_text_of_a_name_takes_the_place_of_the_last(folder: Path) -> None:
    for key in ("one", "two"):
        kept.write("name", key, key)
    assert kept.read("name", "one") is None
    assert kept.read("name", "two") == "two"
    assert len(files(folder)) == 1


@pytest.mark.parametrize("content", [b"", b"text", b"\xff\xfe\n", b"0" * 64 + b"\ntext"])
def test_a_damaged_file_holds_nothing(folder: Path, content: bytes) -> None:
    kept.write("name", "key", "text")
    (file,) = files(folder)
    file.write_bytes(content)
    assert kept.read("name", "key") is None


def test_what_a_killed_writer_left_goes_after_a_day(folder: Path) -> None:
    kept.write("name", "key", "text")
    (file,) = files(folder)
    old, young = (file.with_name(n) for n in (".abc", ".def"))
    for p in (old, young):
        p.write_text("half of a te")
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    kept.write("name", "other", "text")
    assert sorted(files(folder)) == sorted([young, file])


def test_where_nothing_can_be_written_nothing_is_kept(folder: Path) -> None:
    folder.touch()
    kept.write("name", "key", "text")
    assert kept.read("name", "key") is None


def test_a_user_without_a_home_gets_no_folder_called_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WAXEQ_CACHE", "~nobody-of-this-name/cache")
    kept.write("name", "key", "text")
    assert kept.read("name", "key") is None
    assert not files(tmp_path)


def test_without_platformdirs_nothing_is_kept_but_where_a_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    kept.write("name", "key", "text")
    assert kept.read("name", "key") == "text"
    monkeypatch.delenv("WAXEQ_CACHE")
    kept.write("name", "key", "text")
    assert kept.read("name", "key") is None
