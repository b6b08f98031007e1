"""Checks the files that a host of repositories and pre-commit read, that the
changelog has a heading for the version, and that pages and recipes name it.

Usage: hosting_test.py SOURCE_FOLDER. YAML is read by PyYAML: python3's, or that of
./dev docs; without one its checks are left out, and the exit code is 77.
"""

import pathlib
import re
import sys

from any_yaml import yaml

# ddp 0.1, libddp0.1, ddp@0.1.0, 0.1.0+torch2.11
REPEATED = re.compile(r"ddp[@ ]?(\d+\.\d+(?:\.\d+)?)|(\d+\.\d+\.\d+)\+torch")


def versions(source):
    """The version in CMakeLists.txt has to be a heading of the changelog, or to
    come."""
    version = re.search(r"project\(ddp VERSION (\d+\.\d+\.\d+)",
                        (source / "CMakeLists.txt").read_text())[1]
    headings = re.findall(r"^## (.*)$", (source / "CHANGELOG.md").read_text(), re.M)
    if not headings:
        return ["CHANGELOG.md has no headings"]
    found = [f"CHANGELOG.md: no heading '{heading}': 'Unreleased', or '0.2.0 - 2026-12-01'"
             for heading in headings
             if heading != "Unreleased"
             and not re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", heading)]
    if headings[0] != "Unreleased" and not headings[0].startswith(f"{version} - "):
        found.append(f"CHANGELOG.md begins with '{headings[0]}', but the version is "
                     f"{version} and nothing is unreleased")
    return found + other_versions(source, version)


def other_versions(source, version):
    """Where pages and recipes name another version."""
    known = (version, version.rpartition(".")[0])
    found, count = [], 0
    paths = [source / "README.md", *source.glob("docs/*.md"),
             *source.glob("packaging/**/*"), *source.glob(".github/**/*")]
    for path in filter(pathlib.Path.is_file, paths):
        for match in REPEATED.finditer(path.read_text()):
            count += 1
            if (match[1] or match[2]) not in known:
                found.append(f"{path.relative_to(source)}: '{match[0]}', but the version "
                             f"is {version}")
    return found + (["too few places name the version"] if count < 3 else [])


def commands_of(source):
    return set(re.findall(r"^#: ([a-z-]+)", (source / "dev").read_text(), re.M))


def unknown_commands(text, commands, where):
    return [f"{where}: there is no ./dev {name}"
            for name in re.findall(r"\./dev ([a-z-]+)", text) if name not in commands]


def workflow(data, where, commands):
    found = []
    # YAML 1.1 takes `on` for true.
    for key in ("name", True, "permissions", "jobs"):
        if key not in data:
            found.append(f"{where}: no {'on' if key is True else key}")
    for name, job in data.get("jobs", {}).items():
        if "runs-on" not in job or not job.get("steps"):
            found.append(f"{where}: {name} has no runs-on or steps")
        needs = job.get("needs", [])
        for other in [needs] if isinstance(needs, str) else needs:
            if other not in data["jobs"]:
                found.append(f"{where}: {name} needs {other}, which does not exist")
        for step in job.get("steps", []):
            if ("run" in step) == ("uses" in step):
                found.append(f"{where}: a step has to run or to use something: {step}")
            if not re.search(r"@v?\d|@[0-9a-f]{40}$", step.get("uses", "@v1")):
                found.append(f"{where}: {step['uses']} has no version")
            found += unknown_commands(step.get("run", ""), commands, where)
        values = (job.get("strategy") or {}).get("matrix", {}).get("command", [])
        found += unknown_commands(
            " ".join(f"./dev {value}" for value in values), commands, where)
    return found


def form(data, where):
    found = [f"{where}: no {key}" for key in ("name", "description", "body")
             if key not in data]
    names = [part.get("id") for part in data.get("body", [])
             if part.get("type") != "markdown"]
    if None in names or len(set(names)) < len(names):
        found.append(f"{where}: a part without an id of its own")
    for part in data.get("body", []):
        kind, about = part.get("type"), part.get("attributes", {})
        if kind not in ("markdown", "textarea", "input", "dropdown", "checkboxes"):
            found.append(f"{where}: type {kind}")
        if ("value" if kind == "markdown" else "label") not in about:
            found.append(f"{where}: a {kind} without a label or value")
        if kind in ("dropdown", "checkboxes") and not about.get("options"):
            found.append(f"{where}: a {kind} without options")
    return found


def hooks(data, where, commands, source):
    found = []
    for hook in (hook for repo in data["repos"] for hook in repo["hooks"]):
        missing = {"id", "name", "entry", "language"} - set(hook)
        found += [f"{where}: a hook without {key}" for key in sorted(missing)]
        entry = hook.get("entry", "")
        found += unknown_commands(entry, commands, where)
        found += [f"{where}: there is no {name}"
                  for name in re.findall(r"\S+\.py\b", entry)
                  if not (source / name).exists()]
    return found


class Loader(yaml.SafeLoader if yaml else object):
    """Also passes over mkdocs' tags."""


def files_in_yaml(source):
    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    commands = commands_of(source)
    paths = [source / ".pre-commit-config.yaml", source / "docs/site/mkdocs.yml",
             *sorted((source / ".github").rglob("*.yml"))]
    found = []
    for path in paths:
        where = path.relative_to(source).as_posix()
        try:
            data = yaml.load(path.read_text(), Loader)
        except yaml.YAMLError as error:
            found.append(f"{where}: {error}")
            continue
        if not isinstance(data, dict):
            found.append(f"{where}: no mapping")
        elif path.parent.name == "workflows":
            found += workflow(data, where, commands)
        elif path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
            found += form(data, where)
        elif path.name == ".pre-commit-config.yaml":
            found += hooks(data, where, commands, source)
    print(f"{len(paths)} files")
    return found + (["too few files"] if len(paths) < 7 else [])


def main():
    source = pathlib.Path(sys.argv[1])
    found = versions(source)
    if yaml is not None:
        found += files_in_yaml(source)
    print(*found, sep="\n", end="\n" if found else "")
    if not found and yaml is None:
        print("skipped: python3 has no PyYAML; ./dev docs downloads one")
        sys.exit(77)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
