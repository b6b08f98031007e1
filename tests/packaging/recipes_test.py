"""Checks the syntax of packaging/, and that its recipes are of this version.

Usage: recipes_test.py SOURCE_FOLDER. The Dockerfile is checked by docker, if
it has that check.
"""

import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile

OPTIONS = re.compile(r'(?:-D|"|define[.])(DDP_[A-Z_]+|Torch_DIR)\b')


def check_dockerfile(source):
    done = subprocess.run(
        ["docker", "build", "--check", "-f", "packaging/Dockerfile", "."],
        cwd=source, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if re.search("unknown flag|buildx|BuildKit|daemon", said):
        print("Dockerfile: left out: this docker has no `build --check`")
    elif done.returncode:
        sys.exit(said)


def check_portfile(portfile):
    helpers = ("vcpkg_cmake_configure", "vcpkg_cmake_install",
               "vcpkg_cmake_config_fixup", "vcpkg_install_copyright")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "port.cmake"
        script.write_text("".join(
            [f"set(CURRENT_PACKAGES_DIR [[{folder}/packages]])\n"]
            + [f"function({name})\nendfunction()\n" for name in helpers]
            + [f"include([[{portfile.resolve()}]])\n"]))
        subprocess.run(["cmake", "-P", script], check=True)


def main():
    source = pathlib.Path(sys.argv[1])
    folder = source / "packaging"
    version = re.search(r"project\(ddp VERSION ([\d.]+)",
                        (source / "CMakeLists.txt").read_text())[1]
    port = json.loads((folder / "vcpkg/vcpkg.json").read_text())
    package = ast.parse((folder / "spack/package.py").read_text())
    versions = {"vcpkg": port["version"]}
    versions["spack"] = next(
        node.args[0].value for node in ast.walk(package)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", None) == "version")
    try:
        import yaml
    except ImportError:
        print("conda: left out: Python has no module yaml")
    else:
        recipe = yaml.safe_load((folder / "conda/recipe.yaml").read_text())
        versions["conda"] = str(recipe["context"]["version"])
    wrong = {name: each for name, each in versions.items() if each != version}
    if wrong:
        sys.exit(f"ddp is {version}, and the recipes are of {wrong}")
    check_portfile(folder / "vcpkg/portfile.cmake")
    # Options that are spelled as CMake knows them.
    known = " ".join(path.read_text() for path in [
        source / "CMakeLists.txt", *sorted((source / "cmake").glob("*.cmake"))])
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            for option in OPTIONS.findall(path.read_text()):
                if option not in known:
                    sys.exit(f"{path}: CMakeLists.txt knows no {option}")
    if subprocess.run(["which", "docker"], capture_output=True).returncode:
        print("Dockerfile: left out: there is no docker")
    else:
        check_dockerfile(source)


main()
