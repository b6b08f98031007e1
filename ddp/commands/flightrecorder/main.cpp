#include <common/text.h>
#include <ddp/commands/json_files.h>
#include <ddp/commands/program.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace ddp::command {
namespace {

using nlohmann::json;

/// A call as a rank recorded it.
struct Collective {
  std::string group;
  std::string backend;
  /// The rank in the group.
  int64_t rank = 0;
  int64_t size = 1;
  /// The number among the group's collectives, from 1 on; 0 for a message.
  int64_t sequence = 0;
  std::string operation;
  std::string arguments;
  std::string tensors;
  bool alike = true;
  std::string activity;
  std::string state;
  int64_t began_ns = 0;

  /// "all_reduce(SUM) of float32 [4]".
  std::string text() const {
    auto text = operation;
    text += arguments.empty() ? "" : "(" + arguments + ")";
    return text + (tensors.empty() ? "" : " of " + tensors);
  }

  /// The part of the text that must be equal on all ranks.
  std::string signature() const {
    return operation + "(" + arguments + ")" + (alike ? tensors : "");
  }
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

/// Without what would control a terminal.
std::string text_of(const json& object, const char* name) {
  auto text = object.at(name).get<std::string>();
  std::replace_if(
      text.begin(),
      text.end(),
      [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && c != '\n') || byte >= 0x7f;
      },
      '?');
  return text;
}

Collective collective_of(const json& object) {
  Collective result;
  result.group = text_of(object, "group");
  result.backend = text_of(object, "backend");
  result.rank = object.at("rank").get<int64_t>();
  result.size = object.at("size").get<int64_t>();
  result.sequence = object.at("sequence").get<int64_t>();
  result.operation = text_of(object, "operation");
  result.arguments = text_of(object, "arguments");
  result.tensors = text_of(object, "tensors");
  result.alike = object.at("alike").get<bool>();
  result.activity = text_of(object, "activity");
  result.state = text_of(object, "state");
  result.began_ns = object.at("began_ns").get<int64_t>();
  return result;
}

Record record_of(const std::string& path, const json& object) {
  if (object.at("ddp_flight_record") != 1) {
    throw std::runtime_error("it is of another version of ddp");
  }
  Record record;
  record.path = path;
  record.rank = object.at("rank").get<int64_t>();
  record.size = object.at("size").get<int64_t>();
  record.host = text_of(object, "host");
  record.reason = text_of(object, "reason");
  record.time_ns = object.at("time_ns").get<int64_t>();
  for (const auto& each : object.at("collectives")) {
    record.collectives.push_back(collective_of(each));
  }
  return record;
}

void check_job(const std::vector<Record>& records) {
  for (size_t i = 1; i < records.size(); ++i) {
    const auto& one = records[i - 1];
    const auto& other = records[i];
    if (one.size != other.size || one.rank == other.rank) {
      throw std::runtime_error(
          one.path + " and " + other.path +
          " are of different jobs: one is of rank " + std::to_string(one.rank) +
          " of " + std::to_string(one.size) + ", the other of rank " +
          std::to_string(other.rank) + " of " + std::to_string(other.size));
    }
  }
}

/// The records in these files and folders, by rank. Throws `std::runtime_error`
/// if a file cannot be read, or if the records are of different jobs.
std::vector<Record> read_records(const std::vector<std::string>& paths) {
  std::vector<Record> records;
  read_json_files(
      paths,
      R"(.*\.json)",
      "flight record",
      [&](const std::string& path, const json& content) {
        records.push_back(record_of(path, content));
      });
  std::sort(
      records.begin(), records.end(), [](const Record& a, const Record& b) {
        return a.rank < b.rank;
      });
  check_job(records);
  return records;
}

// Ranks write their records at different moments: what has lasted less than
// this when one was written may just have begun.
constexpr int64_t kLongNs = 1000000000;

/// A rank's collectives in one group, by their place in it.
struct Member {
  const Record* record = nullptr;
  std::map<int64_t, const Collective*> calls;

  int rank() const {
    return static_cast<int>(record->rank);
  }
  int64_t last() const {
    return calls.rbegin()->first;
  }
  const Collective* at(int64_t sequence) const {
    const auto found = calls.find(sequence);
    return found == calls.end() ? nullptr : found->second;
  }
};

using Members = std::vector<Member>;

std::string line_of(const std::vector<int>& ranks, const std::string& text) {
  return "    " + name_ranks(ranks) + ": " + text + "\n";
}

std::string head_of(int64_t sequence) {
  return "  collective " + std::to_string(sequence) + ": ";
}

/// The groups, by name and backend, as the ranks' records have them.
std::map<std::string, Members> groups_of(const std::vector<Record>& records) {
  std::map<std::string, Members> groups;
  for (const auto& record : records) {
    std::map<std::string, Member> own;
    for (const auto& call : record.collectives) {
      if (call.sequence > 0) {
        auto& member = own[call.group + " over " + call.backend];
        member.record = &record;
        member.calls[call.sequence] = &call;
      }
    }
    for (auto& [name, member] : own) {
      groups[name].push_back(std::move(member));
    }
  }
  return groups;
}

std::string call_text(const Collective& call) {
  // Not where it is that operation, "all_reduce of 4 Float".
  const bool says_more =
      !call.activity.empty() && call.activity.rfind(call.operation, 0) != 0;
  return call.text() + (says_more ? " (" + call.activity + ")" : "");
}

bool is_stuck(const Member& member, int64_t sequence) {
  const auto* call = member.at(sequence);
  return call &&
      (call->state == "failed" ||
       (call->state != "completed" &&
        member.record->time_ns - call->began_ns >= kLongNs));
}

/// Writes the first collective that the ranks called differently, if there is
/// one.
bool differ(const Members& members, std::ostream& out) {
  std::map<int64_t, std::map<std::string, std::vector<const Member*>>> sides;
  for (const auto& member : members) {
    for (const auto& [sequence, call] : member.calls) {
      sides[sequence][call->signature()].push_back(&member);
    }
  }
  for (const auto& [sequence, by_signature] : sides) {
    if (by_signature.size() == 1) {
      continue;
    }
    out << head_of(sequence) << "the ranks' calls differ\n";
    for (const auto& [signature, side] : by_signature) {
      std::vector<int> ranks;
      for (const auto* member : side) {
        ranks.push_back(member->rank());
      }
      out << line_of(ranks, call_text(*side.front()->at(sequence)));
    }
    return true;
  }
  return false;
}

std::string waiting_text(const Member& member, int64_t sequence) {
  const auto& call = *member.at(sequence);
  const std::chrono::nanoseconds time(member.record->time_ns - call.began_ns);
  return call_text(call) + ": " + call.state + ", begun " +
      describe_time(time) + " before the record";
}

/// The ranks of the group, of `size`, that left no record of it; where it is a
/// part of the job nobody says which ranks it has.
std::string silent_ranks(const Members& members, int64_t size, int64_t world) {
  std::vector<int> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    const bool found =
        std::any_of(members.begin(), members.end(), [&](const Member& member) {
          return member.calls.begin()->second->rank == rank;
        });
    if (!found) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks.empty()
      ? ""
      : name_ranks(ranks) + (size == world ? "" : " of the group");
}

/// The first collective that ranks are stuck in and not all have come to; 0 if
/// there is none. Where one says nothing it may be missing in the last of all,
/// and what is not complete may be so for good.
int64_t missed_by_some(const Members& members, bool some_silent) {
  int64_t least = members.front().last();
  int64_t most = least;
  for (const auto& member : members) {
    least = std::min(least, member.last());
    most = std::max(most, member.last());
  }
  for (auto i = some_silent ? least : least + 1; i <= most; ++i) {
    for (const auto& member : members) {
      const auto* call = member.at(i);
      if (is_stuck(member, i) ||
          (some_silent && call && call->state != "completed")) {
        return i;
      }
    }
  }
  return 0;
}

/// Writes who has not reached a collective that others are stuck in, if so.
bool lag(const Members& members, std::ostream& out) {
  const auto& any = *members.front().calls.begin()->second;
  const auto silent =
      silent_ranks(members, any.size, members.front().record->size);
  const auto sequence = missed_by_some(members, !silent.empty());
  if (sequence == 0) {
    return false;
  }
  out << head_of(sequence) << "not all ranks have called it\n";
  if (!silent.empty()) {
    out << "    " << silent << ": no record\n";
  }
  for (const auto& member : members) {
    if (member.at(sequence)) {
      out << line_of({member.rank()}, waiting_text(member, sequence));
    } else if (member.last() < sequence) {
      out << line_of(
          {member.rank()},
          "not reached; its last is collective " +
              std::to_string(member.last()) + ", " +
              waiting_text(member, member.last()));
    }
  }
  return true;
}

void write_reasons(const std::vector<Record>& records, std::ostream& out) {
  for (const auto& record : records) {
    const auto first = record.reason.substr(0, record.reason.find('\n'));
    out << "rank " << record.rank << " of " << record.size << " on "
        << record.host << ", " << record.collectives.size()
        << " collectives: " << first << "\n";
  }
  std::vector<int> missing;
  for (int64_t rank = 0; rank < records.front().size; ++rank) {
    if (std::none_of(records.begin(), records.end(), [&](const Record& each) {
          return each.rank == rank;
        })) {
      missing.push_back(static_cast<int>(rank));
    }
  }
  if (!missing.empty()) {
    out << name_ranks(missing) << ": no record\n";
  }
}

/// Writes the differences between ranks: for each group, the first collective
/// with different calls, or else the ranks that have not reached a collective
/// in which others wait. Returns whether the ranks agree; false if a rank left
/// no record.
bool compare(const std::vector<Record>& records, std::ostream& out) {
  write_reasons(records, out);
  bool agree = records.size() == static_cast<size_t>(records.front().size);
  for (const auto& [name, members] : groups_of(records)) {
    out << "group " << name << ", size "
        << members.front().calls.begin()->second->size << "\n";
    if (differ(members, out) || lag(members, out)) {
      agree = false;
    } else {
      out << "  the ranks agree, up to collective " << members.front().last()
          << "\n";
    }
  }
  return agree;
}

constexpr int kExitDisagree = 1;
constexpr const char* kProgram = "ddp-flightrecorder";

int run(int argc, char** argv) {
  CLI::App app{"Reports where the ranks of a job disagree.", kProgram};
  app.set_version_flag("--version", "ddp-flightrecorder " DDP_VERSION);
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "records, or folders of them")
      ->required()
      ->type_name("");
  app.footer(
      "Ranks with DDP_DEBUG=info or detail write records to "
      "ddp-debug/rank_*.json\n"
      "when a collective fails, when they crash, on SIGUSR1 and on SIGTERM.\n"
      "Exit code: 0 if all ranks of the job agree, 1 if they do not or one has "
      "no\n"
      "record, 2 if a record cannot be read.\n"
      "\n"
      "Example: ddp-flightrecorder ddp-debug");
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return compare(read_records(paths), std::cout) ? 0 : kExitDisagree;
}

} // namespace
} // namespace ddp::command

int main(int argc, char** argv) {
  return ddp::command::run_program(
      ddp::command::kProgram, ddp::command::run, argc, argv);
}
