#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <common/processes/failure.h>
#include <launcher/report/report.h>

namespace ddp::test {

inline constexpr int kExit3 = 3 << 8; // waitpid's encoding

inline RankEnd ended(int rank, int wait_status, int64_t time_ns) {
  RankEnd end;
  end.rank = rank;
  end.pid = 100 + rank;
  end.time_ns = time_ns;
  end.state.ended(wait_status, std::chrono::milliseconds(1500));
  return end;
}

inline RankEnd stopped(int rank) {
  RankEnd end;
  end.rank = rank;
  end.pid = 100 + rank;
  end.state.asked_to_stop();
  end.state.ended(SIGTERM, std::chrono::milliseconds(1600));
  end.time_ns = 900;
  return end;
}

inline ErrorFile error(const std::string& message, int64_t time_ns) {
  ErrorFile file;
  file.message = message;
  file.time_ns = time_ns;
  return file;
}

inline JobReport report_of(std::vector<RankEnd> ends) {
  JobReport report;
  report.run_id = "run";
  report.command = {"./train"};
  report.reason = StopReason::kFailure;
  report.exit_code = 3;
  report.ranks = std::move(ends);
  report.root = root_cause(report.ranks);
  report.blame = blame_departed(report.ranks);
  if (!report.blame) {
    report.blame = blame_caller(report.ranks);
  }
  return report;
}

} // namespace ddp::test
