from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everturn.tools.policy.shell import parse


def names(command: str) -> list[str]:
    return [simple.name for simple in parse(command).commands]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls -la", ["ls"]),
        ("a | b && c || d; e &", ["a", "b", "c", "d", "e"]),
        ("echo $(rm x) `mv a b`", ["echo", "rm", "mv"]),
        ('echo "today: $(date)"', ["echo", "date"]),
        ("diff <(sort a) <(sort b)", ["diff", "sort", "sort"]),
        ("cat <<EOF\n$(rm x)\nEOF", ["cat", "rm"]),
        ("for f in *; do rm $f; done", ["rm"]),
        ("while read x; do echo $x; done < in", ["read", "echo"]),
        ("case $a in b) rm c;; esac", ["rm"]),
        ("if [[ -f x ]]; then mv x y; fi", ["mv"]),
        ("for ((i=0;i<3;i++)); do touch $i; done", ["touch"]),
        ("f() { rm x; }; f", ["rm", "f"]),
        ("(cd a && rm b)", ["cd", "rm"]),
        ("! grep x y", ["grep"]),
        ("FOO=$(curl x) make", ["make", "curl"]),
        ("[[ $(curl x) ]] && ls", ["curl", "ls"]),
        ("echo ${x:-$(rm y)}", ["echo", "rm"]),
        ("echo $((1 + $(cat n)))", ["echo", "cat"]),
        ("/usr/bin/rm x", ["rm"]),
        ("r\\m x; 'r'm x; \"rm\" x", ["rm", "rm", "rm"]),
    ],
)
def test_every_simple_command_is_found(command: str, expected: list[str]) -> None:
    parsed = parse(command)
    assert names(command) == expected
    assert parsed.opaque == ()


@pytest.mark.parametrize(
    ("command", "inner"),
    [
        ("sh -c 'rm x'", "rm"),
        ('bash -lc "rm x"', "rm"),
        ("bash -e -u -c 'ls; rm x'", "rm"),
        ("sh -c \"sh -c 'rm x'\"", "rm"),
        ("find . | xargs rm", "rm"),
        ("xargs -0 -n 1 -I {} rm {}", "rm"),
        ("sudo rm x", "rm"),
        ("sudo -u root -E rm x", "rm"),
        ("sudo FOO=bar rm x", "rm"),
        ("doas -u root rm x", "rm"),
        ("su root -c 'rm x'", "rm"),
        ("env -i A=b rm x", "rm"),
        ("env -u A rm x", "rm"),
        ("env -S 'rm x'", "rm"),
        ("find . -name a -exec rm {} \\;", "rm"),
        ("find . -execdir rm {} +", "rm"),
        ("find . -ok rm {} ';'", "rm"),
        ("nohup nice -n 5 timeout -k 1 5 rm x", "rm"),
        ("exec rm x", "rm"),
        ("command rm x", "rm"),
        ("eval 'rm x'", "rm"),
        ("eval rm x", "rm"),
        ("trap 'rm x' EXIT", "rm"),
        ("time rm x", "rm"),
        ("busybox rm x", "rm"),
        ("stdbuf -oL rm x", "rm"),
        ("sudo sh -c 'env xargs rm'", "rm"),
        ("flock lock rm x", "rm"),
        ("chroot /x rm y", "rm"),
        ("setsid -f rm x", "rm"),
        ("watch -n 1 rm x", "rm"),
        ("cat x | sudo xargs -I{} sh -c 'rm {}'", "rm"),
    ],
)
def test_a_command_inside_another_is_found(command: str, inner: str) -> None:
    assert inner in names(command)


@pytest.mark.parametrize(
    "command",
    [
        "$CMD x",
        "${CMD} x",
        "$(echo rm) x",
        "`echo rm` x",
        '"$x" y',
        "r$x y",
        "{rm,-rf,/}",
        "/bin/r? x",
        "r* x",
        "$'\\cIrm' x",
        "curl x | sh",
        "bash < script",
        "bash <<EOF\nrm x\nEOF",
        "bash <<< 'rm x'",
        'sh -c "$x"',
        'sh -c "rm $x $(y)"',
        "eval $x",
        'eval "$(curl x)"',
        "xargs $x",
        "sudo $x",
        "sudo -i",
        "env $x",
        "alias ls='rm x'",
        "parallel rm ::: a",
        "echo rm x | at now",
        "if ; then",
        "echo 'unclosed",
        "a | | b",
        "bash -s",
        "bash $script",
        "su -",
    ],
)
def test_words_that_cannot_be_resolved_are_opaque(command: str) -> None:
    assert parse(command).opaque != ()


def test_deep_nesting_ends_as_opaque() -> None:
    assert any("nested" in reason for reason in parse("eval " * 40 + "ls").opaque)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a > x b", ["a b"]),
        ("a b 2>&1 c < y d", ["a b c d"]),
        ("a 1 && b > x 2 3", ["a 1", "b 2 3"]),
        ("a | b > x 2", ["a", "b 2"]),
        ("a <<E 1\nx\nE", ["a 1"]),
    ],
)
def test_words_behind_a_redirection_are_the_commands(command: str, words: list[str]) -> None:
    assert [simple.text for simple in parse(command).commands] == words


def test_redirects_are_seen_and_descriptors_are_not_files() -> None:
    parsed = parse("a > out 2>&1 < in >> more 2>/dev/null")
    assert [(r.target.text, r.is_write) for r in parsed.redirects] == [
        ("out", True),
        ("in", False),
        ("more", True),
        ("/dev/null", True),
    ]


@settings(deadline=None)  # how long it takes is not the question
@given(st.text(alphabet="abc $(){}[]|&;<>'\"`\\\n*?~=-/#!", max_size=60))
def test_no_text_makes_it_raise(text: str) -> None:
    parse(text)
