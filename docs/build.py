#!/usr/bin/env python3
"""Builds the documentation site with MkDocs.

    docs/build.py [SPILLWAY]    default: build/release/spillway

The site is written to build/docs/site. Its sources are the pages of docs/, the README files of hwmodels/,
cuda_calibrate/ and experiments/, CONTRIBUTING.md and CHANGELOG.md, and a reference that SPILLWAY prints. A comment
"<!-- sections FILE: TITLE | TITLE -->" of a page is replaced by these sections of FILE, and "<!-- header FILE -->" by the
comment at the top of FILE, so that each table and equation is written down once. Links to files of the repository become links to their pages.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "docs"
SOURCE = OUT / "src"
SPILLWAY = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/spillway").resolve())


def repository_pages():
    """Files of the repository beside docs/ that are pages of the site, and their names there."""
    pages = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
             "hwmodels/README.md": "more/hwmodels.md", "cuda_calibrate/README.md": "more/cuda_calibrate.md",
             "tests/mutants/README.md": "more/mutants.md"}
    for readme in sorted(ROOT.glob("experiments/*/README.md")):
        pages[str(readme.relative_to(ROOT))] = f"more/{readme.parent.name}.md"
    return pages


def site_name(path, pages):
    """The name in the site of a file of the repository; None: it is not part of the site."""
    if path in pages:
        return pages[path]
    if path.startswith("docs/"):
        return path[len("docs/"):]
    return "pictures/advise.png" if path == "sim/report/html/advise.png" else None


def relink(text, path, pages):
    """Changes the relative links of the file `path` to those of the site."""
    here = site_name(path, pages)

    def change(match):
        target, anchor = match.group(2), match.group(3) or ""
        if re.match(r"[a-z]+:", target) or target == "":
            return match.group(0)
        wanted = os.path.normpath(os.path.join(os.path.dirname(path), target))
        name = site_name(wanted, pages)
        if name is None:
            sys.exit(f"error: {path} links to {target}, which is no page of the site. Write it as code")
        return f"{match.group(1)}{os.path.relpath(name, os.path.dirname(here) or '.')}{anchor})"

    return re.sub(r"(\]\()([^)#\s]*)(#[^)\s]*)?\)", change, text)


def section(path, title):
    """The section of a file with this heading, two levels lower; the text before all headings for "-"."""
    text = (ROOT / path).read_text()
    parts = re.split(r"(?m)^(#+ .*)$", text)
    if title == "-":
        return parts[2].strip()
    for heading, body in zip(parts[1::2], parts[2::2]):
        if heading.lstrip("# ") == title:
            return f"{'#' * (heading.count('#', 0, heading.index(' ')) + 1)} {title}\n\n{body.strip()}"
    sys.exit(f"error: {path} has no section \"{title}\"")


def header(path):
    """The comment at the top of a source file."""
    lines = []
    for line in (ROOT / path).read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "```text\n" + "\n".join(lines) + "\n```"


def include(text):
    def sections(match):
        return "\n\n".join(section(match.group(1), title.strip()) for title in match.group(2).split("|"))
    text = re.sub(r"<!-- sections ([^:]+): (.*?) -->", sections, text)
    return re.sub(r"<!-- header (\S+) -->", lambda match: header(match.group(1)), text)


def spillway(*arguments):
    run = subprocess.run([SPILLWAY, *arguments], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"error: spillway {' '.join(arguments)} failed:\n{run.stderr}")
    return run.stdout


def names(kind):
    return [line.split()[0] for line in spillway("list", kind).splitlines() if line and not line.startswith(" ")]


def wrapped(text, width=104):
    """Long lines continue below the text of their field."""
    lines = []
    for line in text.rstrip().splitlines():
        indent = re.match(r"( *\S+ {2,}| *)", line).end()
        if len(line) > width and indent < 40:
            lines += textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False,
                                   break_on_hyphens=False, drop_whitespace=True, replace_whitespace=False)
        else:
            lines.append(line)
    return "\n".join(lines)


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


def fields(name):
    """What `explain` prints of a name: pairs of a field and its text."""
    found = []
    for line in spillway("explain", name).splitlines()[1:]:
        if line.startswith("  ") and not line.startswith("    ") and line.strip():
            key, _, value = line.strip().partition("  ")
            found.append([key, value.strip()])
        elif found:
            found[-1][1] += "\n" + line.strip() if line.strip() else ""
    return found


def key_table(keys):
    rows = ["| key | takes | default | what |", "|---|---|---|---|"]
    for key in keys:
        of = {}
        for field, value in fields(key):
            of.setdefault(field, value.replace("\n", " "))
        what = cell(of.get("what", ""))
        if "source" in of:
            what += f"<br>*Source: {cell(of['source'])}*"
        takes, unit = of.get("takes", ""), of.get("unit", "-")
        if len(takes) > 120:  # names that the pages of the reference list
            takes = takes.split(" one of ")[0] + " one of the names"
        if unit != "-" and unit not in takes:
            takes += f" ({unit})"
        rows.append(f"| `{key}` | {cell(takes)} | {cell(of.get('default', ''))} | {what} |")
    return "\n".join(rows) + "\n"


def explained(kind, title, intro):
    """A page with what `explain` prints of each name of a kind."""
    text = f"# {title}\n\n{intro}\n"
    for name in names(kind):
        body = "\n".join(spillway("explain", name).splitlines()[1:])
        text += f"\n## {name}\n\n```text\n{wrapped(body)}\n```\n"
    return text


def help_pages(command):
    """A command and all commands below it, as lists of words."""
    pages = [command]
    for block in spillway(*command, "--help").split("Subcommands:\n")[1:]:
        for name in re.findall(r"(?m)^  (\S+)  ", block.split("\n\n")[0]):
            pages += help_pages([*command, name])
    return pages


def reference():
    """The pages of the reference, as the binary prints it."""
    folder = SOURCE / "reference"
    folder.mkdir()
    note = "The binary prints this text: `spillway explain NAME`."

    commands = "# Commands\n\nThe binary prints this text: `spillway COMMAND --help`.\n"
    for command in help_pages([]):
        commands += f"\n## {' '.join(['spillway', *command])}\n\n```text\n{spillway(*command, '--help').strip()}\n```\n"
    (folder / "commands.md").write_text(commands)

    keys = names("keys")
    own = [key for key in keys if key.startswith("policy.")]
    text = ("# Keys\n\nA key is set on the command line (`workload.rate=8`), in a JSON file or by an environment variable "
            "(`SPILLWAY_WORKLOAD_RATE=8`). `spillway explain KEY` prints the same. Keys of policies are on the page "
            "[Policies](policies.md).\n")
    groups = {}
    for key in keys:
        if key not in own:
            groups.setdefault(key.split(".")[0] if "." in key else "run", []).append(key)
    for group, members in groups.items():
        text += f"\n## {group}\n\n{key_table(members)}"
    (folder / "keys.md").write_text(text)

    text = f"# Policies\n\n{note}\n"
    for policy in names("policies"):
        text += f"\n## {policy}\n\n"
        shown = spillway("explain", policy)
        lines = shown.splitlines()[1:]
        until = next((i for i, line in enumerate(lines) if line.startswith("policy.")), len(lines))
        text += f"```text\n{wrapped(chr(10).join(lines[:until]))}\n```\n"
        if until < len(lines):
            text += "\n" + policy_keys(shown)
    (folder / "policies.md").write_text(text)

    text = ("# Metrics\n\nA statistic and a metric make a name: `p99_ttft_ms`, `mean_tpot_ms`. `spillway explain METRIC` "
            "prints the same.\n\n| metric | unit | names | what |\n|---|---|---|---|\n")
    for metric in names("metrics"):
        of = dict(fields(metric))
        text += (f"| `{metric}` | {cell(of.get('unit', ''))} | {cell(of.get('names', '').split(',')[0])} | "
                 f"{cell(of.get('what', '').replace(chr(10), ' '))} |\n")
    (folder / "metrics.md").write_text(text)

    for kind, title in (("routers", "Routers"), ("hardware", "Hardware"), ("models", "Models"), ("engines", "Engines"),
                        ("workloads", "Workloads")):
        (folder / f"{kind}.md").write_text(explained(kind, title, note))

    claims = "# Published claims\n\n`spillway explain ID` prints this text. [Claims](../claims.md) says what came out.\n"
    for experiment in names("experiments"):
        claims += f"\n## {experiment}\n\n```text\n{wrapped(spillway('explain', experiment))}\n```\n"
    (folder / "claims.md").write_text(claims)

    schema = json.loads(spillway("config", "schema"))
    (folder / "config.schema.json").write_text(json.dumps(schema, indent=2) + "\n")
    (folder / "schema.md").write_text(
        "# JSON Schema\n\n`spillway config schema` prints the schema of a configuration, for editors that check and "
        "complete JSON files: [config.schema.json](config.schema.json).\n")


def policy_keys(shown):
    """The keys of a policy as a table, from what `explain` prints of the policy."""
    rows = ["| key | takes | default | what |", "|---|---|---|---|"]
    for block in re.split(r"(?m)^(?=policy\.)", shown)[1:]:
        key = block.split()[0]
        of = {}
        for line in block.splitlines()[1:]:
            match = re.match(r"  (\S+)\s+(.*)", line)
            if match:
                of[match.group(1)] = match.group(2)
        takes, unit = of.get("takes", ""), of.get("unit", "-")
        takes = cell(takes if unit == "-" or unit in takes else f"{takes} ({unit})")
        what = cell(of.get("what", "")) + (f"<br>*Source: {cell(of['source'])}*" if "source" in of else "")
        rows.append(f"| `{key}` | {takes} | {cell(of.get('default', ''))} | {what} |")
    return "\n".join(rows) + "\n"


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    (SOURCE / "more").mkdir()
    pages = repository_pages()
    for page in sorted(ROOT.glob("docs/*.md")):
        path = f"docs/{page.name}"
        (SOURCE / page.name).write_text(relink(include(page.read_text()), path, pages))
    for path, name in pages.items():
        (SOURCE / name).write_text(relink((ROOT / path).read_text(), path, pages))
    shutil.copytree(ROOT / "docs/pictures", SOURCE / "pictures")
    shutil.copy(ROOT / "sim/report/html/advise.png", SOURCE / "pictures/advise.png")
    shutil.copy(ROOT / "docs/site.css", SOURCE / "site.css")
    shutil.copy(ROOT / "docs/mkdocs.yml", OUT / "mkdocs.yml")
    reference()
    # Debian's jinja2 warns of escapes in the theme that Debian ships.
    environment = dict(os.environ, PYTHONWARNINGS="ignore")
    subprocess.run(["mkdocs", "build", "--strict", "--quiet", "--config-file", str(OUT / "mkdocs.yml")],
                   check=True, env=environment)
    print(f"wrote {OUT / 'site' / 'index.html'}")


main()
