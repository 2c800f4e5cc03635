"""The chart, the examples, the alerts and the dashboards agree with each other and with the programs. Nothing of this needs helm."""

import ast
import json
import pathlib
import re
import shutil
import subprocess
import unittest

import dashboards
import readme
import schema
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "waybill"
EXAMPLES = ROOT / "examples"
# What Prometheus and its operator add to everything they read.
LABELS_OF_PROMETHEUS = {"job", "namespace", "pod", "le", "instance"}
# Rust type → API group and name in rules.
RESOURCES = {
    "Broker": ("waybill.dev", "brokers"), "Proxy": ("waybill.dev", "proxies"), "Topic": ("waybill.dev", "topics"),
    "ConsumerGroup": ("waybill.dev", "consumergroups"), "User": ("waybill.dev", "users"),
    "StatefulSet": ("apps", "statefulsets"), "Deployment": ("apps", "deployments"), "Service": ("", "services"),
    "ConfigMap": ("", "configmaps"), "ServiceAccount": ("", "serviceaccounts"), "Pod": ("", "pods"), "Secret": ("", "secrets"),
    "PersistentVolumeClaim": ("", "persistentvolumeclaims"), "PodDisruptionBudget": ("policy", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("autoscaling", "horizontalpodautoscalers"), "Lease": ("coordination.k8s.io", "leases"),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"), "Namespace": ("", "namespaces"),
    "ReplicaSet": ("apps", "replicasets"), "Event": ("events.k8s.io", "events"),
}


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def definitions():
    """The custom resource definitions, by kind."""
    found = [documents(path)[0] for path in sorted((ROOT / "crds").glob("*.yaml"))]
    return {definition["spec"]["names"]["kind"]: definition for definition in found}


def rules():
    """What the operator may do: {(group, resource): verbs}, wherever it may."""
    may = {}
    for rule in documents(CHART / "files" / "rules.yaml")[0]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                may.setdefault((group, resource), set()).update(rule["verbs"])
    template = (CHART / "templates" / "operator" / "rbac.yaml").read_text()
    pattern = r"apiGroups: \[(\S*)\]\s+resources: \[(\S*)\]\s+(?:resourceNames: .*\s+)?verbs: \[(.*)\]"
    for group, resource, verbs in re.findall(pattern, template.split("{{- if .Values.rbac.aggregate }}")[0]):
        may.setdefault((group.strip('"'), resource), set()).update(verbs.split(", "))
    return may


class Definitions(unittest.TestCase):
    def test_the_chart_has_those_of_crds(self):
        """`make docs` copies them."""
        texts = [{path.name: path.read_text() for path in folder.glob("*.yaml")} for folder in (ROOT / "crds", CHART / "crds")]
        self.assertTrue(texts[0])
        self.assertEqual(*texts)


class Values(unittest.TestCase):
    def test_the_schema_has_every_value_and_no_other(self):
        def paths(tree, at=""):
            found = set()
            for name, below in tree.items():
                found.add(f"{at}{name}")
                if isinstance(below, dict) and below:
                    found |= paths(below, f"{at}{name}.")
            return found

        def allowed(tree, at=""):
            found = set()
            for name, below in tree.get("properties", {}).items():
                found.add(f"{at}{name}")
                if "properties" in below:
                    self.assertIs(below.get("additionalProperties"), False, f"{at}{name}")
                found |= allowed(below, f"{at}{name}.")
            return found

        checked = json.loads((CHART / "values.schema.json").read_text())
        self.assertIs(checked["additionalProperties"], False)
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        # Objects of Kubernetes, and lists of labels, have fields of their own.
        free = ("operator.resources.", "monitoring.dashboards.labels.")
        self.assertEqual({path for path in paths(values) if not path.startswith(free)}, allowed(checked) - {"global"})

    def test_the_page_is_made_from_them(self):
        page = (CHART / "README.md").read_text()
        self.assertEqual(page, readme.page(page), "run charts/readme.py")
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        text = (CHART / "values.yaml").read_text()
        told = {path for path, _ in readme.described(text)}

        def untold(tree, at=""):
            for name, below in tree.items():
                path = f"{at}{name}"
                if path not in told:
                    if isinstance(below, dict) and below:
                        yield from untold(below, f"{path}.")
                    else:
                        yield path

        self.assertEqual(list(untold(values)), [])

    def test_one_version(self):
        chart = documents(CHART / "Chart.yaml")[0]
        version = re.search(r'\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text())[1]
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))


class Rights(unittest.TestCase):
    def test_of_everything_the_operator_speaks_of_and_nothing_else(self):
        sources = [path.read_text().split("#[cfg(test)]")[0] for path in sorted((ROOT / "operator" / "src").rglob("*.rs"))]
        code = "\n".join(sources)
        spoken_of = set(re.findall(r"\bApi<(?:\w+::)*(\w+)>", code)) | set(re.findall(r"\bobject::<(?:\w+::)*(\w+)>", code))
        spoken_of |= set(re.findall(r"\blook_after::<(\w+)>", code)) | {"Broker"}
        wanted = {RESOURCES[name] for name in spoken_of if name in RESOURCES}
        named = {RESOURCES[name] for name in RESOURCES if re.search(rf"\b{name}\b", code)}
        unknown = {name for name in spoken_of if name not in RESOURCES and len(name) > 2 and name != "DynamicObject" and name != "Self"}
        self.assertEqual(unknown, set(), "add them to RESOURCES")
        may = {(group, resource) for group, resource in rules() if "/" not in resource}
        self.assertEqual(wanted - may, set(), "the chart does not give these rights")
        self.assertEqual(may - named, set(), "nothing in operator/src speaks of these")

    def test_no_resource_is_changed_that_nobody_changes(self):
        # Finalizers are set on what stands for something on brokers (reconcile/finalizer.rs); of the others only the status is written.
        changed = {resource for (group, resource), verbs in rules().items()
                   if group == "waybill.dev" and "/" not in resource and verbs & {"patch", "update", "create", "delete"}}
        self.assertEqual(changed, {"topics", "consumergroups"})

    def test_no_wildcards(self):
        for (group, resource), verbs in rules().items():
            self.assertNotIn("*", {group, resource, *verbs})

    def test_every_kind_with_status(self):
        for kind, definition in definitions().items():
            plural = definition["spec"]["names"]["plural"]
            self.assertIn(("waybill.dev", plural), rules(), kind)
            if "status" in definition["spec"]["versions"][0].get("subresources", {}):
                self.assertIn("patch", rules()["waybill.dev", f"{plural}/status"])


class Metrics(unittest.TestCase):
    """Names and labels in alerts and dashboards are those of docs/metrics.md."""

    @classmethod
    def setUpClass(cls):
        cls.labels = {}
        for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
            if match := re.match(r"\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", line):
                name, kind, labels = match.groups()
                of_its_own = {label for label in labels.replace(",", " ").split()}
                for suffix in ("_bucket", "_sum", "_count") if kind == "histogram" else ("",):
                    cls.labels[name + suffix] = of_its_own | LABELS_OF_PROMETHEUS
        cls.labels["up"] = LABELS_OF_PROMETHEUS

    def check(self, query, where):
        """Every name followed by a selector, a range or an operator, and every label it is selected or grouped by."""
        bare = re.sub(r'"[^"]*"', '""', query).replace("$pods", 'namespace="",pod=""')
        named = set(re.findall(r"\b(?:waybill|rocketmq|process)_\w+|\bup\b", bare))
        self.assertTrue(named, where)
        for name in named:
            self.assertIn(name, self.labels, f"{where}: no such metric")
        for name, selector in re.findall(r"\b(\w+)\{([^}]*)\}", bare):
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
                self.assertIn(label, self.labels[name], f"{where}: {name} has no label {label}")
        everything = set().union(*(self.labels[name] for name in named))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare):
            for label in re.split(r"[, ]+", group):
                self.assertIn(label, everything, f"{where}: nothing has a label {label}")
        self.assertEqual(bare.count("("), bare.count(")"), where)

    def test_alerts(self):
        page = (ROOT / "docs" / "alerts.md").read_text()
        sections, alerts = set(re.findall(r"^## (\w+)$", page, re.MULTILINE)), set()
        for group in documents(CHART / "files" / "alerts" / "waybill.yaml")[0]["groups"]:
            for rule in group["rules"]:
                name = rule["alert"]
                self.assertNotIn(name, alerts)
                alerts.add(name)
                self.check(rule["expr"], name)
                self.assertIn(rule["labels"]["severity"], {"critical", "warning"})
                self.assertEqual(rule["annotations"]["runbook_url"], f"docs/alerts.md#{name.lower()}")
                self.assertLessEqual({"summary", "description"}, set(rule["annotations"]))
        self.assertEqual(alerts, sections)

    def test_dashboards(self):
        for dashboard in dashboards.DASHBOARDS.values():
            for query in dashboards.queries(dashboard):
                if query.startswith("label_values("):
                    self.assertIn(query.removeprefix("label_values(").split(",")[0], self.labels)
                else:
                    self.check(query, dashboard[0])
        wanted = dict(dashboards.files())
        self.assertEqual({path: path.read_text() for path in dashboards.FOLDER.glob("*")}, wanted, "run charts/dashboards.py")

    def test_a_metric_that_is_not_there_is_found(self):
        with self.assertRaises(AssertionError):
            self.check("waybill_nonsense_total > 0", "here")
        with self.assertRaises(AssertionError):
            self.check('waybill_store_disk_full{nonsense="x"} > 0', "here")


class Examples(unittest.TestCase):
    def test_fields_are_those_of_the_definitions(self):
        known, kinds = definitions(), set()
        for path in sorted(EXAMPLES.glob("*.yaml")):
            for document in documents(path):
                if document["apiVersion"].startswith("waybill.dev/"):
                    kinds.add(document["kind"])
                    self.assertEqual(schema.of_resource(document, known), [], path.name)
        self.assertEqual(kinds, set(known), "every kind has an example")

    def test_each_begins_with_what_it_is_for(self):
        for path in sorted(EXAMPLES.glob("*.yaml")):
            text = path.read_text()
            self.assertTrue(text.startswith("# "), path.name)
            self.assertLessEqual(len(text.splitlines()), 80, path.name)
            for needed in re.findall(r"^# e2e: needs (\S+)$", text, re.MULTILINE):
                self.assertTrue((EXAMPLES / needed).exists(), f"{path.name} needs {needed}")

    def test_the_page_lists_them(self):
        page = (EXAMPLES / "README.md").read_text()
        there = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*")
                 if path.is_file() and path.name not in ("README.md", "package-lock.json")}
        listed = set(re.findall(r"\]\(([^)#:]+)\)", page))
        self.assertEqual({path for path in there if not any(path == l or path.startswith(l.rstrip("/") + "/") for l in listed)}, set())

    def test_clients_can_be_read(self):
        """Their grammar; they were run by hand. Languages that this machine lacks are passed over, Java's has no such check."""
        clients = {path.suffix: path for path in (EXAMPLES / "clients").glob("[cC]lient.*")}
        self.assertEqual(set(clients), {".py", ".js", ".go", ".rs", ".java"})
        for path in (EXAMPLES / "clients").glob("*.py"):
            ast.parse(path.read_text())
        for suffix, command in {".js": ["node", "--check"], ".go": ["gofmt", "-l"], ".rs": ["rustfmt", "--check", "--edition", "2024"]}.items():
            if shutil.which(command[0]):
                done = subprocess.run([*command, clients[suffix]], capture_output=True, text=True, cwd=ROOT)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), clients[suffix].name)

    def test_a_wrong_field_is_found(self):
        topic = {"apiVersion": "waybill.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "a"}, "spec": {"brokerRef": {"name": "main"}}}
        self.assertEqual(schema.of_resource(topic, definitions()), [])
        for spec in ({}, {"brokerRef": {"name": ""}}, {"brokerRef": {"name": "main"}, "queues": 0}, {"brokerRef": {"name": "main"}, "quues": 1},
                     {"brokerRef": {"name": "main"}, "messageType": "Normal"}, {"brokerRef": "main"}):
            self.assertNotEqual(schema.of_resource(topic | {"spec": spec}, definitions()), [], spec)


if __name__ == "__main__":
    unittest.main()
