// The benchmarks that bench/run.py (./dev bench) starts, most of them as ranks;
// each prints its results as a line of JSON. commands.h lists their arguments.

#include <bench/commands.h>

#include <ATen/Parallel.h>

#include <cstdio>
#include <exception>
#include <map>

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(const bench::Arguments&)> commands{
      {"step", bench::measure_steps},
      {"all_reduce", bench::measure_all_reduce},
      {"checkpoint", bench::measure_checkpoints},
      {"sampler", bench::measure_sampler},
      {"memory", bench::measure_memory},
      {"loader", bench::measure_loader},
      {"ranks", bench::measure_ranks},
      {"wire", bench::measure_wire}};
  const auto found = commands.find(argc > 1 ? argv[1] : "");
  if (found == commands.end()) {
    std::fprintf(stderr, "usage: ddp_bench COMMAND [ARGUMENTS...]\n");
    return 2;
  }
  at::set_num_threads(1);
  try {
    found->second(bench::Arguments(argv + 2, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ddp_bench %s: %s\n", argv[1], error.what());
    return 1;
  }
  return 0;
}
