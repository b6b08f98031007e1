#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::command {

/// A call as a rank recorded it.
struct Collective {
  std::string group;
  std::string backend;
  /// The rank in the group.
  int64_t rank = 0;
  int64_t size = 1;
  /// The number among the group's collectives, from 1; 0 for a message.
  int64_t sequence = 0;
  std::string operation;
  std::string arguments;
  std::string tensors;
  bool alike = true;
  std::string activity;
  std::string state;
  int64_t began_ns = 0;

  /// Returns text such as "all_reduce(SUM) of float32 [4]".
  std::string text() const;
  /// The part of the text that must be equal on all ranks.
  std::string signature() const;
};

/// The record of one rank.
struct Record {
  std::string path;
  int64_t rank = 0;
  int64_t size = 1;
  std::string host;
  std::string reason;
  int64_t time_ns = 0;
  std::vector<Collective> collectives;
};

/// Reads the records in these files and folders, and returns them by rank.
/// Throws `std::runtime_error` if a file cannot be read, or if the records are
/// from different jobs.
std::vector<Record> read_records(const std::vector<std::string>& paths);

} // namespace ddp::command
