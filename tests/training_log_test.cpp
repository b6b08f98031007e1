// The log of examples/cifar10_resnet/cifar10_resnet.cpp, and its learning
// rates.
#include <examples/cifar10_resnet/cifar10_arguments.h>
#include <examples/cifar10_resnet/training_log.h>
#include <tests/support/catch.h>
#include <tests/support/temporary_folder.h>

#include <cmath>
#include <filesystem>
#include <regex>

namespace training_log_test {

using ddp::test::read_text;
using ddp::test::TemporaryFolder;
using ddp::test::write_text;

namespace {

EpochRecord record(int64_t epoch) {
  const auto e = static_cast<double>(epoch);
  return {epoch, 10 * epoch, 0.1 / e, 4 / e, 0.1 * e, 8 / e, 0.05 * e, 1.5 * e};
}

size_t count(const std::string& text, const std::string& form) {
  const std::regex regex(form);
  return static_cast<size_t>(std::distance(
      std::sregex_iterator(text.begin(), text.end(), regex),
      std::sregex_iterator()));
}

} // namespace

TEST_CASE("the log has a line for each epoch, and its curves") {
  const TemporaryFolder folder;
  const auto path = folder / "a/b";
  TrainingLog log(path, 0);
  log.add(record(1));
  log.add(record(2));
  REQUIRE(
      read_text(path + "/log.csv") ==
      "epoch,step,learning_rate,train_loss,train_accuracy,test_loss,"
      "test_accuracy,seconds\n"
      "1,10,0.1,4,0.1,8,0.05,1.500\n"
      "2,20,0.05,2,0.2,4,0.1,3.000\n");
  const auto svg = read_text(path + "/log.svg");
  REQUIRE(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0) == 0);
  REQUIRE(count(svg, "<polyline [^>]*points=\"[0-9., ]+\"/>") == 4);
  // Loss, 480 wide from 60 on and 280 high from 40 on; the highest is 8.
  REQUIRE_THAT(svg, ContainsSubstring("points=\"300.0,40.0 540.0,180.0 \""));
  REQUIRE_THAT(svg, ContainsSubstring("points=\"300.0,180.0 540.0,250.0 \""));
  // Accuracy, from 620 on; the highest is 1.
  REQUIRE_THAT(svg, ContainsSubstring("points=\"860.0,292.0 1100.0,264.0 \""));
  REQUIRE_THAT(svg, ContainsSubstring("points=\"860.0,306.0 1100.0,292.0 \""));
  const auto names = std::filesystem::directory_iterator(path);
  REQUIRE(std::distance(begin(names), end(names)) == 2);
}

TEST_CASE("a log that is gone on with repeats no epoch") {
  const TemporaryFolder folder;
  TrainingLog whole(folder / "whole", 0);
  TrainingLog first(folder / "parts", 0);
  for (int64_t epoch = 1; epoch <= 5; ++epoch) {
    whole.add(record(epoch));
    if (epoch <= 4) {
      first.add(record(epoch)); // of the fourth there was no checkpoint yet
    }
  }
  TrainingLog second(folder / "parts", 3);
  REQUIRE(second.records().size() == 3);
  second.add(record(4));
  second.add(record(5));
  for (const std::string name : {"log.csv", "log.svg"}) {
    REQUIRE(
        read_text(folder / ("parts/" + name)) ==
        read_text(folder / ("whole/" + name)));
  }
  // A new run begins a new one.
  TrainingLog(folder / "parts", 0).add(record(1));
  REQUIRE(count(read_text(folder / "parts/log.csv"), "\n") == 2);
}

TEST_CASE("a file that is no such log is left alone") {
  const TemporaryFolder folder;
  TrainingLog(folder.path(), 0).add(record(1));
  const auto good = read_text(folder / "log.csv");
  const auto refused = [&](const std::string& text, const std::string& reason) {
    write_text(folder / "log.csv", text);
    REQUIRE_THROWS_WITH(
        TrainingLog(folder.path(), 2),
        ContainsSubstring(
            "log.csv is no log of this program's: line " + reason));
    REQUIRE(read_text(folder / "log.csv") == text);
  };
  refused("hello\n", "1 is 'hello'");
  refused(good + "2,20,0.1\n", "3 is '2,20,0.1'");
  refused(good + "2,20,0.1,1,1,1,1,1,1\n", "3 is");
  refused(good + "\n" + good, "3 is ''");
}

TEST_CASE("a plot stands what losses can be") {
  const TemporaryFolder folder;
  TrainingLog log(folder.path(), 0);
  auto diverged = record(1);
  diverged.train_loss = std::nan("");
  diverged.test_loss = 1e30;
  log.add(diverged);
  const auto svg = read_text(folder / "log.svg");
  REQUIRE(count(svg, "<polyline [^>]*points=\"[0-9., ]+\"/>") == 4);
  REQUIRE(TrainingLog(folder.path(), 1).records().size() == 1);
}

TEST_CASE("learning rates go down as the schedule says") {
  Arguments arguments;
  arguments.epochs = 8;
  arguments.learning_rate = 0.4;
  const auto is = [&](int64_t epoch, double expected) {
    return std::abs(learning_rate(arguments, epoch) - expected) < 1e-12;
  };
  CHECK(is(0, 0.4)); // the cosine
  CHECK(is(4, 0.2));
  CHECK(is(2, 0.2 + 0.2 * std::sqrt(0.5)));
  CHECK(learning_rate(arguments, 7) > 0);
  arguments.schedule = Schedule::kStep;
  CHECK(is(3, 0.4));
  CHECK(is(4, 0.04));
  CHECK(is(5, 0.04));
  CHECK(is(6, 0.004));
  arguments.schedule = Schedule::kConstant;
  CHECK(is(7, 0.4));
}

} // namespace training_log_test
