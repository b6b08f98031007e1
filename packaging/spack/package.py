# In a repository of Spack's as packages/ddp/package.py; from the checkout:
#   spack dev-build ddp@0.1.0
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator

from spack.package import *


class Ddp(CMakePackage):
    """Data-parallel training for programs written against LibTorch."""

    license("BSD-3-Clause")

    version("0.1.0")

    variant("mpi", default=True, description="Build the backend for MPI")

    depends_on("c", type="build", when="+mpi")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("cli11", type="build")
    depends_on("curl")
    depends_on("gloo", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("xxhash", type="build")
    depends_on("py-torch@2.11 +distributed +gloo")
    depends_on("mpi@3:", when="+mpi")

    generator("ninja")

    def cmake_args(self):
        torch = self.spec["py-torch"].package.cmake_prefix_paths[0]
        return [
            self.define("Torch_DIR", join_path(torch, "Torch")),
            self.define_from_variant("DDP_WITH_MPI", "mpi"),
            self.define("DDP_BUILD_TESTS", False),
            self.define("DDP_BUILD_EXAMPLES", False),
            self.define("DDP_BUILD_BENCH", False),
        ]
