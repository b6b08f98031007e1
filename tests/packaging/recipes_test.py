"""Checks the recipes of packaging/: their versions, options and paths.

Usage: recipes_test.py SOURCE_FOLDER, or with --tools by a Python that has those of
requirements.txt: rattler-build renders conda's recipe, and hadolint reads the
Dockerfile.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

OPTIONS = re.compile(r'(?:-D|"|define[.])(DDP_[A-Z_]+|Torch_DIR)\b')


def check_portfile(source, name):
    portfile = source / "packaging/vcpkg/portfile.cmake"
    # vcpkg looks for <folder>/vcpkg.json, or for <folder>/<name>/vcpkg.json. Its
    # default libraries on Linux are static, which the port does not support.
    (ports,) = re.findall(r"-dynamic --overlay-ports=(\S+)", portfile.read_text())
    if portfile.parent not in (source / ports, source / ports / name):
        sys.exit(f"{portfile}: there is no port {name} in {ports}")
    helpers = ("vcpkg_cmake_configure", "vcpkg_cmake_install",
               "vcpkg_cmake_config_fixup", "vcpkg_install_copyright")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "port.cmake"
        script.write_text("".join(
            [f"set(CURRENT_PACKAGES_DIR [[{folder}/packages]])\n"]
            + [f"function({name})\nendfunction()\n" for name in helpers]
            + [f"include([[{portfile.resolve()}]])\n"]))
        subprocess.run(["cmake", "-P", script], check=True)


def version_of_spack(path):
    """Evaluates the package with stand-ins for Spack's names."""
    versions = []

    class CMakePackage:
        torch = types.SimpleNamespace(cmake_prefix_paths=["/torch/share/cmake"])
        spec = {"py-torch": types.SimpleNamespace(package=torch)}
        define = define_from_variant = staticmethod("-D{}={}".format)

    names = {"CMakePackage": CMakePackage, "version": versions.append,
             "join_path": lambda *parts: "/".join(parts)}
    for directive in ("depends_on", "generator", "license", "variant"):
        names[directive] = lambda *_, **__: None
    exec(re.sub(r"(?m)^from spack.*", "", path.read_text()), names)
    arguments = names["Ddp"]().cmake_args()
    if "-DTorch_DIR=/torch/share/cmake/Torch" not in arguments:
        sys.exit(f"{path}: Torch_DIR is not py-torch's: {arguments}")
    return versions[0]


def check_options(source):
    """They have to be spelled as CMakeLists.txt knows them."""
    known = " ".join(path.read_text() for path in [
        source / "CMakeLists.txt", *sorted((source / "cmake").glob("*.cmake"))])
    for path in sorted((source / "packaging").rglob("*")):
        if path.is_file():
            for option in OPTIONS.findall(path.read_text()):
                if option not in known:
                    sys.exit(f"{path}: CMakeLists.txt knows no {option}")


def check_by_tools(folder):
    from rattler_build import Stage0Recipe, VariantConfig
    recipe = Stage0Recipe.from_file(folder / "conda/recipe.yaml")
    for variant in recipe.render(VariantConfig()):
        made = variant.recipe.to_dict()
        print(made["package"], made["requirements"])
    hadolint = pathlib.Path(sys.executable).with_name("hadolint")
    # Warnings are about versions of Debian's packages.
    sys.exit(subprocess.run([hadolint, "--failure-threshold", "error",
                             folder / "Dockerfile"]).returncode)


def main():
    source = pathlib.Path(sys.argv[1])
    folder = source / "packaging"
    if "--tools" in sys.argv:
        check_by_tools(folder)
    version = re.search(r"project\(ddp VERSION ([\d.]+)",
                        (source / "CMakeLists.txt").read_text())[1]
    port = json.loads((folder / "vcpkg/vcpkg.json").read_text())
    recipe = (folder / "conda/recipe.yaml").read_text()
    versions = {"conda": re.search(r"(?m)^  version: (.*)", recipe)[1],
                "spack": version_of_spack(folder / "spack/package.py"),
                "vcpkg": port["version"]}
    wrong = {name: each for name, each in versions.items() if each != version}
    if wrong:
        sys.exit(f"ddp is {version}, and the recipes are of {wrong}")
    for path in ("conda/recipe.yaml", "spack/package.py", "vcpkg/vcpkg.json"):
        if "curl" not in (folder / path).read_text():
            sys.exit(f"{folder / path}: without libcurl, ddprun knows no etcd")
    check_portfile(source, port["name"])
    check_options(source)


main()
