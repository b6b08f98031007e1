#include <ddp/commands/flightrecorder/comparison.h>

#include <common/text.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ddp::command {
namespace {

// Ranks write their records at different times: a collective that began less
// than this time before a record may not be stuck.
constexpr int64_t kLongNs = 1000000000;

/// A rank's collectives in one group, by sequence number.
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

/// The groups in the ranks' records, by name and backend.
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
  // The activity may only repeat the operation: "all_reduce of 4 Float".
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

/// Writes the first collective that the ranks called differently, if any.
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

/// The ranks of a group of `size` that have no record of the group. Records do
/// not tell which ranks of the job a smaller group has.
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

/// The first collective in which ranks are stuck and that not all have called;
/// 0 if there is none. A rank without a record may be missing in the last
/// collective of all others, so there each incomplete collective counts.
int64_t missed_by_some(const Members& members, bool some_silent) {
  int64_t least = members.front().last();
  std::set<int64_t> called;
  for (const auto& member : members) {
    least = std::min(least, member.last());
    for (const auto& [sequence, call] : member.calls) {
      called.insert(sequence);
    }
  }
  const auto begin =
      some_silent ? called.lower_bound(least) : called.upper_bound(least);
  for (auto i = begin; i != called.end(); ++i) {
    for (const auto& member : members) {
      const auto* call = member.at(*i);
      if (is_stuck(member, *i) ||
          (some_silent && call && call->state != "completed")) {
        return *i;
      }
    }
  }
  return 0;
}

/// Writes the ranks that have not reached a collective in which other ranks are
/// stuck; returns whether any such rank exists.
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
    out << "    " << silent << ": no record of this group\n";
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

} // namespace

bool compare(const std::vector<Record>& records, std::ostream& out) {
  write_reasons(records, out);
  bool agree = records.size() == static_cast<size_t>(records.front().size);
  for (const auto& [name, members] : groups_of(records)) {
    out << "group " << name << ", size "
        << members.front().calls.begin()->second->size << "\n";
    const bool differed = differ(members, out); // which a program may survive
    if (lag(members, out) || differed) {
      agree = false;
    } else {
      out << "  the ranks agree, up to collective " << members.front().last()
          << "\n";
    }
  }
  return agree;
}

} // namespace ddp::command
