#include <launcher/report/blame.h>

#include <algorithm>

#include <sys/wait.h>

#include <launcher/wording.h>

namespace ddp {
namespace {

constexpr size_t kMostSides = 4; // that are told

// What a rank does for its program, as far as it is known.
struct Place {
  std::string call; // empty between calls
  std::string after; // what it had done before, then
};

// Ranks that were in the same call, or in none.
struct Side {
  Place place;
  std::vector<int> ranks;
  size_t first = 0; // index
};

// What the program called, without what that called in turn.
std::string outermost(const std::string& activity) {
  const size_t colon = activity.find(": ");
  const size_t object = activity.find("(\"");
  if (object > colon || object == std::string::npos) {
    return activity.substr(0, colon);
  }
  const size_t end = activity.find("\"): ", object);
  return end == std::string::npos ? activity : activity.substr(0, end + 2);
}

std::string call_of(const std::string& activity) {
  // Ranks differ in the bucket by nothing but their speed.
  return activity.rfind("bucket ", 0) == 0 ? "the reduction of gradients"
                                           : outermost(activity);
}

// Where a rank was when the first failure came. A rank that goes on after that,
// or ends by itself, says no more where it had been.
std::optional<Place> place_of(const RankEnd& end) {
  const bool failed = end.state.failed();
  if (end.activity.empty() || end.state.alive() ||
      (!failed && WIFEXITED(end.state.wait_status()))) {
    return std::nullopt;
  }
  const std::string after = "after ";
  if (end.activity.rfind(after, 0) != 0) {
    return Place{call_of(end.activity), ""};
  }
  if (!failed) {
    return Place{"", end.activity};
  }
  // An exception that the program caught has left the call.
  const std::string call = end.activity.substr(after.size());
  if (call.rfind("step ", 0) == 0) {
    return std::nullopt;
  }
  return Place{call, ""};
}

// A call that was left has lost what it is about, such as a file's name.
bool is_same_call(const std::string& one, const std::string& other) {
  return one == other || one == other.substr(0, other.find("(\"")) ||
      other == one.substr(0, one.find("(\""));
}

std::vector<Side> sides_of(const std::vector<RankEnd>& ends) {
  std::vector<Side> sides;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto place = place_of(ends[i]);
    if (!place) {
      continue;
    }
    const auto side =
        std::find_if(sides.begin(), sides.end(), [&](const Side& each) {
          return is_same_call(each.place.call, place->call);
        });
    if (side == sides.end()) {
      sides.push_back({*place, {ends[i].rank}, i});
      continue;
    }
    side->ranks.push_back(ends[i].rank);
    if (place->call.size() > side->place.call.size()) {
      side->place.call = place->call;
    }
    if (place->after != side->place.after) {
      side->place.after.clear();
    }
  }
  return sides;
}

// "rank 1 was in barrier", or of ranks that are no reason: "ranks 0,2 waited in
// barrier".
std::string describe(const Side& side, bool waited) {
  const std::string was = side.ranks.size() > 1 ? " were" : " was";
  const std::string ranks = name_ranks(side.ranks);
  if (!side.place.call.empty()) {
    return ranks + (waited ? " waited" : was) + " in " + side.place.call;
  }
  const std::string& after = side.place.after;
  return ranks + was + " in no call of ddp's" +
      (after.empty() ? "" : " (" + after + ")");
}

std::string describe(const std::vector<Side>& sides, bool waited) {
  std::string text;
  for (size_t i = 0; i < std::min(sides.size(), kMostSides); ++i) {
    text += (i > 0 ? " and " : "") + describe(sides[i], waited);
  }
  return text + (sides.size() > kMostSides ? " and others elsewhere" : "");
}

// The rank that failed first, if that follows from another rank.
std::optional<size_t> first_victim(const std::vector<RankEnd>& ends) {
  const auto root = root_cause(ends);
  return root && is_consequence(ends[*root]) ? root : std::nullopt;
}

bool departed(const RankEnd& end) {
  return !end.state.alive() && end.state.wait_status() == 0 &&
      end.state.last_phase() == RankState::Phase::kRunning;
}

} // namespace

std::optional<Blame> blame_departed(const std::vector<RankEnd>& ends) {
  const auto victim = first_victim(ends);
  if (!victim) {
    return std::nullopt;
  }
  Blame blame;
  std::vector<int> ranks;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!departed(ends[i]) || ends[i].time_ns >= failure_time(ends[*victim])) {
      continue;
    }
    ranks.push_back(ends[i].rank);
    if (!blame.index || ends[i].time_ns < ends[*blame.index].time_ns) {
      blame.index = i;
    }
  }
  if (ranks.empty()) {
    return std::nullopt;
  }
  blame.text = name_ranks(ranks) + " had ended with code 0 ";
  const int rank = ends[*victim].rank;
  for (const Side& side : sides_of(ends)) {
    const auto& all = side.ranks;
    if (std::find(all.begin(), all.end(), rank) != all.end()) {
      blame.text += "while " + describe(side, true);
      return blame;
    }
  }
  blame.text += "before " + name_ranks({rank}) + " failed";
  return blame;
}

std::optional<Blame> blame_caller(const std::vector<RankEnd>& ends) {
  const bool ended = std::none_of(
      ends.begin(), ends.end(), [](const auto& e) { return e.state.alive(); });
  std::vector<Side> sides = sides_of(ends);
  if (!ended || sides.size() < 2 || !first_victim(ends)) {
    return std::nullopt;
  }
  const auto count = [](const Side& side) { return side.ranks.size(); };
  std::stable_sort(
      sides.begin(), sides.end(), [&](const auto& a, const auto& b) {
        return count(a) > count(b);
      });
  const bool tie = count(sides[0]) == count(sides[1]);
  const Side most = sides.front();
  sides.erase(sides.begin());
  if (tie) {
    return Blame{{}, describe(most, true) + " while " + describe(sides, true)};
  }
  // In the order of their ranks again.
  std::sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  return Blame{
      sides.front().first,
      describe(sides, false) + " while " + describe(most, true)};
}

} // namespace ddp
