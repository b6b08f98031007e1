#include <launcher/report/blame.h>

#include <algorithm>

#include <sys/wait.h>

#include <common/heartbeat_page.h>
#include <common/text.h>

namespace ddp {
namespace {

bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

// A call without its arguments: "save" for "save("a.pt")", "all_reduce" for
// "all_reduce of 10 Float".
std::string name_of_call(const std::string& call) {
  return call.substr(0, std::min(call.find("(\""), call.find(" of ")));
}

// The last call in a heartbeat's activity between calls: "barrier" for "after
// barrier". Empty within a call, and after a step of a Reducer.
std::string call_before(const std::string& activity) {
  const std::string after = "after ";
  return starts_with(activity, after) && !starts_with(activity, "after step ")
      ? activity.substr(after.size())
      : "";
}

constexpr size_t kMostSides = 4; // in a text
// A rank's connections close, and its peers fail, at most this long before its
// end.
constexpr int64_t kClosingNs = 1'000'000'000;

// The known position of a rank in its program.
struct Place {
  std::string call; // empty between calls
  std::string after; // the activity before, if there is no call
  bool left = false; // by an exception: its arguments are unknown
};

// Ranks that were in the same call, or in none.
struct Side {
  Place place;
  std::vector<int> ranks;
  size_t first = 0; // of their indices
};

// The position of a rank at the first failure; unknown if the rank continued
// after it or exited by itself.
std::optional<Place> place_of(const RankEnd& end) {
  const bool failed = end.state.failed();
  if (end.activity.empty() || end.state.alive() ||
      (!failed && WIFEXITED(end.state.wait_status()))) {
    return std::nullopt;
  }
  std::string call = call_of(end.activity);
  if (!failed) {
    return Place{call, call.empty() ? end.activity : "", false};
  }
  const bool left = call.empty(); // and the program caught the exception
  if (left) {
    call = call_before(end.activity);
  }
  return call.empty() ? std::nullopt
                      : std::make_optional(Place{call, "", left});
}

bool belongs(const Side& side, const Place& place) {
  const std::string& call = side.place.call;
  return call == place.call || (place.left && name_of_call(call) == place.call);
}

void add(std::vector<Side>* sides, const Place& place, int rank, size_t index) {
  const auto fits = [&](const Side& each) { return belongs(each, place); };
  const auto side = std::find_if(sides->begin(), sides->end(), fits);
  if (side == sides->end()) {
    sides->push_back({place, {rank}, index});
    return;
  }
  if (std::any_of(side + 1, sides->end(), fits)) {
    return; // it is unknown which of these it had called
  }
  side->ranks.push_back(rank);
  side->first = std::min(side->first, index);
  if (place.after != side->place.after) {
    side->place.after.clear();
  }
}

std::vector<Side> sides_of(const std::vector<RankEnd>& ends) {
  std::vector<Side> sides;
  for (const bool left : {false, true}) { // ranks with known arguments first
    for (size_t i = 0; i < ends.size(); ++i) {
      const auto place = place_of(ends[i]);
      if (place && place->left == left) {
        add(&sides, *place, ends[i].rank, i);
      }
    }
  }
  for (Side& each : sides) {
    std::sort(each.ranks.begin(), each.ranks.end());
  }
  std::sort(sides.begin(), sides.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  return sides;
}

// "rank 1 was in barrier", or for ranks that are not the reason: "ranks 0,2
// waited in barrier".
std::string describe(const Side& side, bool waited) {
  const std::string was = side.ranks.size() > 1 ? " were" : " was";
  const std::string ranks = name_ranks(side.ranks);
  if (!side.place.call.empty()) {
    return ranks + (waited ? " waited" : was) + " in " + side.place.call;
  }
  const std::string& after = side.place.after;
  return ranks + was + " in no call to ddp" +
      (after.empty() ? "" : " (" + after + ")");
}

std::string describe(const std::vector<Side>& sides, bool waited) {
  std::string text;
  for (size_t i = 0; i < std::min(sides.size(), kMostSides); ++i) {
    text += (i > 0 ? " and " : "") + describe(sides[i], waited);
  }
  return text + (sides.size() > kMostSides ? " and others elsewhere" : "");
}

// The rank that failed first, if another rank caused its failure. None if it
// failed in a group of some of the ranks: the others need not make its calls.
std::optional<size_t> first_victim(const std::vector<RankEnd>& ends) {
  const auto root = root_cause(ends);
  return root && is_consequence(ends[*root]) && !ends[*root].failed_in_part
      ? root
      : std::nullopt;
}

} // namespace

std::string call_of(const std::string& activity) {
  if (starts_with(activity, "after ")) {
    return "";
  }
  if (starts_with(activity, "bucket ")) {
    // Ranks are in different buckets only because of their speed.
    const size_t owner = std::min(activity.find(kOfReducer), activity.size());
    return "the reduction of gradients" + activity.substr(owner);
  }
  const size_t colon = activity.find(": ");
  const size_t object = activity.find("(\"");
  if (object > colon || object == std::string::npos) {
    return activity.substr(0, colon);
  }
  // The object may contain a colon.
  const size_t end = activity.find("\"): ", object);
  return end == std::string::npos ? activity : activity.substr(0, end + 2);
}

std::optional<Blame> blame_departed(const std::vector<RankEnd>& ends) {
  const auto victim = first_victim(ends);
  if (!victim) {
    return std::nullopt;
  }
  Blame blame;
  std::vector<int> ranks;
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!departed(ends[i]) ||
        ends[i].time_ns - kClosingNs >= failure_time(ends[*victim])) {
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
  const auto most = std::max_element(
      sides.begin(), sides.end(), [&](const auto& a, const auto& b) {
        return count(a) < count(b);
      });
  const bool tie =
      std::count_if(sides.begin(), sides.end(), [&](const auto& s) {
        return count(s) == count(*most);
      }) > 1;
  const Side waiting = *most;
  sides.erase(most);
  const std::string others = describe(sides, tie);
  const std::string rest = describe(waiting, true);
  return tie ? Blame{{}, rest + " while " + others}
             : Blame{sides.front().first, others + " while " + rest};
}

} // namespace ddp
