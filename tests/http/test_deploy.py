"""The files for operators name what is really there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dovetail.core.records import TopicConfig
from dovetail.runtime import metrics
from dovetail.runtime.config import load
from tests.http.api import Api, Refused
from tests.http.conftest import Start

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"


def metric_names(api: Api) -> set[str]:
    lines = api.metrics().splitlines()
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    found = set(kinds)
    for name, kind in kinds.items():
        assert name.endswith("_total") == (kind == "counter"), f"{name} is a {kind}"
        if kind == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    return found


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\bdovetail_[a-z_]+", text))


def labels_in(expression: str) -> set[str]:
    """The labels that an expression groups by or asks for."""
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    asked = re.findall(r"(\w+)(?:=~|!~|!=|=)\"", expression)
    return {name.strip() for names in grouped for name in names.split(",")} | set(asked)


def placeholders_in(text: str) -> set[str]:
    return set(re.findall(r"{{ *(?:\$labels\.)?(\w+) *}}", text))


@pytest.fixture
def busy(start: Start) -> Api:
    """A broker that has something to say about everything."""
    api = start(TopicConfig(lag_warning=1))
    api.post("/v1/topics", name="jobs", lanes=True)
    api.publish("jobs", "x")
    api.publish("jobs", "y")
    api.join("crew", "jobs")
    api.poll("crew", max=1)
    with pytest.raises(Refused):
        api.post("/v1/topics", name="jobs")
    return api


def test_alerts_and_dashboard_use_metrics_and_labels_that_exist(busy: Api) -> None:
    known = metric_names(busy)
    labels = {*re.findall(r"(\w+)=\"", busy.metrics()), "instance", "job"}
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len(alerts) >= 8
    for rule in alerts:
        assert named_in(rule["expr"]) <= known, rule["alert"]
        assert labels_in(rule["expr"]) <= labels, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}
        told = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", told)) <= labels, rule["alert"]
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    targets = [target for panel in panels for target in panel["targets"]]
    for target in targets:
        assert named_in(target["expr"]) <= known, target
        assert labels_in(target["expr"]) | placeholders_in(target["legendFormat"]) <= labels, target
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_dashboard_shows_every_metric_and_no_panel_lies_on_another(busy: Api) -> None:
    panels = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    shown = {name for panel in panels for target in panel["targets"] for name in named_in(target["expr"])}
    families = {line.split()[2] for line in busy.metrics().splitlines() if line.startswith("# TYPE")}
    assert {each for each in families if not any(name.startswith(each) for name in shown)} == set()
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"]
        taken |= cells


def test_promtool_has_nothing_to_say_about_metrics_and_rules(busy: Api) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("NO PROMTOOL: metrics and rules were not checked by it (apt-get install prometheus)")
    for words, said in (
        (["check", "metrics"], busy.metrics()),
        (["check", "rules", str(DEPLOY / "alerts.yml")], ""),
        (["check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml")], ""),
    ):
        found = subprocess.run([promtool, *words], input=said, capture_output=True, text=True, timeout=60, check=False)
        assert (found.returncode, found.stderr) == (0, ""), words


def test_labels_are_bounded_and_what_is_beyond_is_summed_up(busy: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    busy.join("other", "jobs")
    busy.join("third", "jobs", member="bea")
    for name in ("LOGS_MAX", "GROUPS_MAX", "MEMBERS_MAX"):
        monkeypatch.setattr(metrics, name, 1)
    found = dict(line.rsplit(" ", 1) for line in busy.metrics().splitlines() if line.endswith(tuple("0123456789")))
    assert found['dovetail_group_lag{group="crew"}'] == "2"
    assert found['dovetail_group_lag{group="(others)"}'] == "4"
    assert found['dovetail_group_members{group="(others)"}'] == "2"
    assert sum(float(found[each]) for each in found if each.startswith("dovetail_log_messages")) == 2
    topics = {each for each in found if each.startswith("dovetail_published_total")}
    assert topics == {'dovetail_published_total{topic="(others)",partition="(others)"}'}
    members = {each for each in found if each.startswith("dovetail_member_in_flight")}
    assert len(members) == 2


def test_the_container_and_the_unit_start_with_settings_that_exist() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    variables = dict(re.findall(r"(DOVETAIL_\w+)=(\S+)", dockerfile))
    load("", "", variables)
    assert "USER dovetail" in dockerfile
    assert "HEALTHCHECK" in dockerfile
    unit = (DEPLOY / "dovetail.service").read_text()
    load("", "", dict(re.findall(r"Environment=(DOVETAIL_\w+)=(\S+)", unit)))
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == {"dovetail", "prometheus", "grafana"}
    for service in services.values():
        for mounted in (each.split(":")[0] for each in service["volumes"] if each.startswith("./")):
            made_first = mounted in ("./etc", "./prometheus.token")
            assert made_first or (DEPLOY / mounted).is_file(), mounted
    (source,) = yaml.safe_load((DEPLOY / "grafana.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((DEPLOY / "dashboards.yaml").read_text())["providers"]
    assert any(provider["options"]["path"] in each for each in services["grafana"]["volumes"])
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"] == ["alerts.yml"]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("NO SYSTEMD: the unit was not checked")
    unit = (DEPLOY / "dovetail.service").read_text().replace("/opt/dovetail/bin/dovetail", "/bin/true")
    (tmp_path / "dovetail.service").write_text(unit)
    words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "dovetail.service")]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "dovetail.service" not in found.stderr, found.stderr
