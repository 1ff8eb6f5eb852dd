"""Release ordinals and languages."""

from __future__ import annotations

import pytest

from orbitmq.protocol.remoting.versions import LANGUAGES, Language, version_name, version_ordinal


@pytest.mark.parametrize(
    ("release", "ordinal", "name"),
    [
        ("3.4.9", 121, "V3_4_9"),
        ("4.0.0", 213, "V4_0_0"),
        ("4.1.0", 233, "V4_1_0"),
        ("4.9.0", 393, "V4_9_0"),
        ("4.9.3", 399, "V4_9_3"),
        ("V4_9_4", 401, "V4_9_4"),
        ("4.9.8", 409, "V4_9_8"),
        ("5.0.0", 413, "V5_0_0"),
        ("5.2.0", 453, "V5_2_0"),
        ("5.3.3", 479, "V5_3_3"),
        ("5.3.3-SNAPSHOT", 478, "V5_3_3_SNAPSHOT"),
        ("4.0.0-SNAPSHOT", 212, "V4_0_0_SNAPSHOT"),
        ("5.9.9", 611, "V5_9_9"),
    ],
)
def test_ordinals(release: str, ordinal: int, name: str) -> None:
    assert version_ordinal(release) == ordinal
    assert version_name(ordinal) == name


@pytest.mark.parametrize("release", ["", "5.3", "5.3.3.1", "6.0.0", "5.10.0", "3.2.6", "5.3.x", "٥.3.3"])
def test_releases_without_ordinal(release: str) -> None:
    with pytest.raises(ValueError, match="release"):
        version_ordinal(release)


def test_ordinals_without_release() -> None:
    assert version_name(63) == "V3_ORDINAL_63"
    assert version_name(612) == version_name(9999) == "HIGHER_VERSION"


def test_every_ordinal_names_a_release_with_that_ordinal() -> None:
    for ordinal in range(212, 612):
        assert version_ordinal(version_name(ordinal)) == ordinal


def test_language_ordinals() -> None:
    assert [LANGUAGES.index(language) for language in (Language.JAVA, Language.PYTHON, Language.GO)] == [0, 3, 9]
    assert LANGUAGES[13] is Language.NODE_JS
