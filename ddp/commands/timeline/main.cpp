#include <ddp/commands/timeline/picture.h>
#include <ddp/commands/timeline/rank_timeline.h>
#include <ddp/commands/timeline/trace.h>

#include <ddp/commands/program.h>

#include <fstream>
#include <set>
#include <stdexcept>

namespace ddp::command {
namespace {

constexpr const char* kProgram = "ddp-timeline";

using Writer = void (*)(std::ostream&, const std::vector<RankTimeline>&);

void write_file(
    const std::string& path,
    const std::vector<RankTimeline>& timelines,
    Writer writer) {
  std::ofstream file(path);
  writer(file, timelines);
  file.close();
  if (!file) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

/// Prints notes about missing data.
void say_gaps(const std::vector<RankTimeline>& timelines) {
  std::set<int64_t> ranks;
  for (const auto& timeline : timelines) {
    ranks.insert(timeline.rank);
    if (!timeline.clock_error && timeline.world_size > 1) {
      say(kProgram,
          "note: rank " + std::to_string(timeline.rank) +
              "'s clock was not compared with rank 0's");
    }
  }
  const auto size = static_cast<size_t>(timelines[0].world_size);
  if (ranks.size() < size) {
    say(kProgram,
        "note: the files are from " + std::to_string(ranks.size()) + " of " +
            std::to_string(size) + " ranks");
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "Merges the recorded steps of all ranks, with their clocks aligned.",
      kProgram};
  std::vector<std::string> paths;
  std::string trace;
  std::string picture;
  app.set_version_flag("--version", "ddp-timeline " DDP_VERSION);
  app.add_option("files", paths, "Files of ranks, or folders of them")
      ->required();
  app.add_option(
      "-o,--output",
      trace,
      "File for a trace for Perfetto (https://ui.perfetto.dev) and "
      "chrome://tracing");
  app.add_option("--svg", picture, "File for a picture");
  app.footer(
      "Ranks write the steps DDP_TIMELINE_STEPS (such as 10-12) to the "
      "folder\nDDP_TIMELINE. Without -o and --svg, the trace is written to "
      "standard output.");
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  const auto timelines = read_timelines(paths);
  say_gaps(timelines);
  if (!trace.empty()) {
    write_file(trace, timelines, write_trace);
  }
  if (!picture.empty()) {
    write_file(picture, timelines, write_picture);
  }
  if (trace.empty() && picture.empty()) {
    write_trace(std::cout, timelines);
  }
  return 0;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  return ddp::command::run_program(
      ddp::command::kProgram, ddp::command::run, argc, argv);
}
