"""What is kept compiled is loaded into the kernel: only what is ours and whole is taken."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from torchbench_magic.cpp.build import Cache, Snip, build, the_cache

ROOT = os.geteuid() == 0


def runs(log: Path) -> list[str]:
    return log.read_text().split()


def test_a_user_without_a_home_gets_a_folder_for_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for asked in ("", "no/absolute/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", asked)
        assert the_cache().why_private == "this user has no home folder"


@pytest.mark.parametrize("spoiled", ["cut off", "changed", "without a hash", "writable by others", "a link"])
def test_a_library_that_is_not_as_it_was_made_is_compiled_anew_with_a_word(
    spoiled: str, pretender: Path, tmp_path: Path
) -> None:
    snips = {"a": Snip.of("x;")}
    library = build(snips)["a"].library
    assert build(snips)["a"].why_anew == ""
    assert len(runs(pretender)) == 1
    if spoiled == "cut off":
        os.truncate(library, 2)
    elif spoiled == "changed":
        library.write_text("evil\n")
    elif spoiled == "without a hash":
        library.with_name(f"{library.name}.sums").unlink()
    elif spoiled == "writable by others":
        library.chmod(0o666)
    else:
        other = tmp_path / "other.so"
        library.rename(other)
        library.symlink_to(other)
    library.with_name(f"{library.name}.returned").touch()
    made = build(snips)["a"]
    assert made.library.read_text() == "made\n"
    assert not made.library.is_symlink()
    assert made.library.stat().st_mode & 0o022 == 0
    said = {"writable by others": "can be written by other users", "a link": "is a link", "without a hash": "no hash"}
    assert said.get(spoiled, "was truncated or changed after compiling") in made.why_anew
    assert not library.with_name(f"{library.name}.returned").exists()  # it is called once where that does no harm
    assert len(runs(pretender)) == 2
    assert build(snips)["a"].why_anew == ""
    assert len(runs(pretender)) == 2


@pytest.mark.skipif(not ROOT, reason="only root gives a file away")
def test_a_library_of_another_user_is_not_loaded(pretender: Path) -> None:
    library = build({"a": Snip.of("x;")})["a"].library
    os.chown(library, 12345, 12345)
    assert "belongs to another user" in build({"a": Snip.of("x;")})["a"].why_anew


def test_in_a_folder_that_others_can_write_nothing_is_kept_or_taken(pretender: Path) -> None:
    library = build({"a": Snip.of("x;")})["a"].library
    the_cache().folder.chmod(0o777)
    made = build({"a": Snip.of("x;")})["a"]
    assert "can be written by other users" in made.why_private
    assert made.library != library
    the_cache().folder.parent.chmod(0o777)
    assert "can be written by other users" in the_cache().why_private


@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077])
def test_whatever_the_umask_the_cache_is_the_users_own(umask: int, pretender: Path, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        for text in ("x;", "y;"):
            assert build({"a": Snip.of(text)})["a"].why_private == ""
        shutil.rmtree(the_cache().folder.parent)  # as a cleaner does while the kernel runs
        assert build({"a": Snip.of("x;")})["a"].why_private == ""
        assert build({"a": Snip.of("x;")})["a"].why_private == ""
    finally:
        os.umask(before)
    assert len(runs(pretender)) == 3


def test_two_kernels_that_made_different_bytes_of_one_text_are_both_known(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    target = cache.path("key") / "a.so"
    for content in ("one", "two"):
        with cache.making(target) as workshop:
            (workshop / "a.so").write_text(content)
            cache.keep(workshop, target)
        assert cache.used(target)
    target.write_text("one")  # the other one's, which was put in place last
    assert cache.used(target)


def test_beyond_its_size_what_was_used_longest_ago_goes(tmp_path: Path) -> None:
    cache, now = Cache(tmp_path / "cache"), time.time()
    targets = [cache.path("key") / f"{name}.so" for name in "abcd"]
    for age, target in enumerate(targets):
        with cache.making(target) as workshop:
            (workshop / target.name).write_bytes(b"x" * 1000)
            cache.keep(workshop, target)
        target.with_name(f"{target.name}.returned").touch()
        os.utime(target, (now - age * 7200, now - age * 7200))
    cache.prune(most=2500)
    assert [target.exists() for target in targets] == [True, True, False, False]
    left = {path.name for path in (tmp_path / "cache" / "key").iterdir()}
    assert left == {f"{name}.so{ending}" for name in "ab" for ending in ("", ".sums", ".returned")}
    cache.prune(most=0)
    assert [target.exists() for target in targets] == [True, False, False, False]  # the first is in use
