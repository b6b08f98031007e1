#pragma once

#include <tests/support/failures.h>

#include <nlohmann/json.hpp>

namespace ddp::test {

// Jobs that run with DDP_DEBUG.

/// The outcomes of a job's ranks, and their records.
struct Job {
  std::vector<Outcome> outcomes;
  std::unique_ptr<TemporaryFolder> folder;

  std::string path(int rank) const {
    return *folder / ("rank_" + std::to_string(rank) + ".json");
  }
  nlohmann::json record(int rank) const {
    return nlohmann::json::parse(read_text(path(rank)));
  }
};

inline std::vector<Command> commands_in(
    const TemporaryFolder& folder,
    std::vector<Command> commands) {
  for (auto& command : commands) {
    command.environment["DDP_DEBUG_FOLDER"] = folder.path();
  }
  return commands;
}

/// Runs `body` on each rank. Returns nullopt in a rank of another call.
inline std::optional<Job> job(
    int size,
    const std::string& backend,
    const std::string& level,
    const std::function<void()>& body,
    const std::vector<int>& exit_codes = {}) {
  auto commands = commands_of_ranks(
      size, body, {{"DDP_BACKEND", backend}, {"DDP_DEBUG", level}});
  if (commands.empty()) {
    return std::nullopt;
  }
  Job result;
  result.folder = std::make_unique<TemporaryFolder>();
  result.outcomes =
      run(commands_in(*result.folder, std::move(commands)),
          std::chrono::seconds(60));
  for (int r = 0; r < size; ++r) {
    const auto& outcome = result.outcomes.at(r);
    INFO("rank " << r << " over " << backend << ":\n" << outcome.output);
    REQUIRE(outcome.exit_code == (exit_codes.empty() ? 0 : exit_codes.at(r)));
  }
  return result;
}

/// The output of ddp-flightrecorder, which must exit with this code.
inline std::string report_of(
    int exit_code,
    std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), variable("DDP_FLIGHTRECORDER"));
  return output_of(run(Command{arguments, {}}, kLong), exit_code);
}

inline ProcessGroup group_with(std::chrono::seconds timeout) {
  return ddp::init_process_group(ddp::ProcessGroupOptions().timeout(timeout));
}

/// A program's signal handler, and the number of its calls.
inline std::atomic<int> own_calls{0};
inline void own_handler(int /*signal*/) {
  ++own_calls;
}

} // namespace ddp::test
