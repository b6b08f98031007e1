#include <ddp/command/timeline/picture.h>
#include <ddp/command/timeline/rank_timeline.h>
#include <ddp/command/timeline/trace.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::command {
namespace {

constexpr int kExitTrouble = 2;

using Writer = void (*)(std::ostream&, const std::vector<RankTimeline>&);

/// One line, of printable characters.
int say(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  std::cerr << "ddp-timeline: " << text << std::endl;
  return kExitTrouble;
}

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

/// What a reader of the picture had better know.
void say_gaps(const std::vector<RankTimeline>& timelines) {
  std::set<int64_t> ranks;
  for (const auto& timeline : timelines) {
    ranks.insert(timeline.rank);
    if (!timeline.clock_error && timeline.world_size > 1) {
      say("note: rank " + std::to_string(timeline.rank) +
          "'s clock was not compared with rank 0's");
    }
  }
  const auto size = static_cast<size_t>(timelines[0].world_size);
  if (ranks.size() < size) {
    say("note: files of " + std::to_string(ranks.size()) + " of " +
        std::to_string(size) + " ranks");
  }
}

int run(int argc, char** argv) {
  CLI::App app{
      "Puts the recorded steps of all ranks together, with their clocks "
      "aligned.",
      "ddp-timeline"};
  std::vector<std::string> paths;
  std::string trace;
  std::string picture;
  app.set_version_flag("--version", "ddp-timeline " DDP_VERSION);
  app.add_option("files", paths, "Files of ranks, or folders of them")
      ->required();
  app.add_option(
      "-o,--output",
      trace,
      "Where to write a trace for Perfetto (https://ui.perfetto.dev) and "
      "chrome://tracing");
  app.add_option("--svg", picture, "Where to write a picture");
  app.footer(
      "Ranks write their files where DDP_TIMELINE names a folder, of the "
      "steps\nDDP_TIMELINE_STEPS (10-12). Without -o and --svg the trace goes "
      "to standard\noutput.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::cout << version.what() << '\n';
    return 0;
  } catch (const CLI::ParseError& error) {
    return say(std::string(error.what()) + " (see ddp-timeline --help)");
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
  return std::cout.flush() ? 0 : say("cannot write to standard output");
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  // A closed pipe, as by `| head`, ends it.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return ddp::command::run(argc, argv);
  } catch (const std::exception& error) {
    return ddp::command::say(error.what());
  }
}
