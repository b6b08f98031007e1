#include "training_log.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fs = std::filesystem;

namespace {

constexpr const char* kHeader =
    "epoch,step,learning_rate,train_loss,train_accuracy,test_loss,"
    "test_accuracy,seconds";

template <typename... Values>
std::string text(const char* format, const Values&... values) {
  char buffer[512];
  std::snprintf(buffer, sizeof(buffer), format, values...);
  return buffer;
}

std::string line_of(const EpochRecord& r) {
  return text(
      "%" PRId64 ",%" PRId64 ",%.9g,%.9g,%.9g,%.9g,%.9g,%.3f",
      r.epoch,
      r.step,
      r.learning_rate,
      r.train_loss,
      r.train_accuracy,
      r.test_loss,
      r.test_accuracy,
      r.seconds);
}

bool parse(const std::string& line, EpochRecord& r) {
  int end = 0;
  const auto found = std::sscanf(
      line.c_str(),
      "%" SCNd64 ",%" SCNd64 ",%lf,%lf,%lf,%lf,%lf,%lf%n",
      &r.epoch,
      &r.step,
      &r.learning_rate,
      &r.train_loss,
      &r.train_accuracy,
      &r.test_loss,
      &r.test_accuracy,
      &r.seconds,
      &end);
  return found == 8 && static_cast<size_t>(end) == line.size();
}

/// Readers find the old file or the new one.
void replace(const fs::path& path, const std::string& content) {
  const auto next = path.string() + ".next";
  std::ofstream file(next, std::ios::binary);
  file << content;
  file.close();
  std::error_code error;
  if (file) {
    fs::rename(next, path, error);
  }
  TORCH_CHECK(
      file && !error,
      path.string(),
      " cannot be written: is the disk full, or the folder write-protected?");
}

/// A curve over the epochs, in a panel of its own.
struct Curve {
  const char* name;
  const char* color;
  double EpochRecord::*value;
};

constexpr double kWidth = 480;
constexpr double kHeight = 280;

/// Where a panel's values lie on the page.
struct Axes {
  double left;
  double last_epoch;
  double highest;

  double x(double epoch) const {
    return left + kWidth * epoch / last_epoch;
  }
  double y(double value) const {
    return 40 + kHeight * (1 - value / highest);
  }
};

std::string label(
    double x,
    double y,
    const char* how,
    const std::string& what) {
  return text(
      "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, how, what.c_str());
}

std::string grid(const Axes& axes) {
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const auto value = axes.highest * i / 4;
    const auto y = axes.y(value);
    svg += text(
        "<path d=\"M%.1f %.1fh%.1f\" stroke=\"#ddd\"/>\n",
        axes.left,
        y,
        kWidth);
    svg +=
        label(axes.left - 6, y + 4, "text-anchor=\"end\"", text("%.3g", value));
    const auto epoch = axes.last_epoch * i / 4;
    svg += label(
        axes.x(epoch),
        kHeight + 58,
        "text-anchor=\"middle\"",
        text("%.3g", epoch));
  }
  return svg;
}

std::string panel(
    const std::vector<EpochRecord>& records,
    const Axes& axes,
    const std::string& title,
    const std::vector<Curve>& curves) {
  auto svg = grid(axes);
  svg += label(axes.left, 26, "font-size=\"15\"", title);
  auto legend = axes.left + kWidth;
  for (const auto& curve : curves) {
    std::string points;
    for (const auto& r : records) {
      const auto value = r.*curve.value < axes.highest // not NaN
          ? std::max(r.*curve.value, 0.0)
          : axes.highest;
      points += text(
          "%.1f,%.1f ", axes.x(static_cast<double>(r.epoch)), axes.y(value));
    }
    svg += text("<g stroke=\"%s\" fill=\"%s\">\n", curve.color, curve.color);
    svg += "<polyline fill=\"none\" stroke-width=\"1.5\" points=\"" + points +
        "\"/>\n";
    svg += label(legend, 26, "stroke=\"none\" text-anchor=\"end\"", curve.name);
    svg += "</g>\n";
    legend -= 60;
  }
  return svg;
}

std::string plot(const std::vector<EpochRecord>& records) {
  const auto epochs = static_cast<double>(records.back().epoch);
  double loss = 0;
  for (const auto& r : records) {
    for (const auto value : {r.train_loss, r.test_loss}) {
      loss = value < 1e9 ? std::max(loss, value) : loss; // not NaN
    }
  }
  const Axes losses{60, epochs, loss > 0 ? loss : 1};
  const Axes accuracies{620, epochs, 1};
  return text(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1130\" "
             "height=\"%.0f\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
             kHeight + 90) +
      panel(records,
            losses,
            "loss over epochs",
            {{"test", "#c03000", &EpochRecord::test_loss},
             {"train", "#0060a0", &EpochRecord::train_loss}}) +
      panel(records,
            accuracies,
            "accuracy over epochs",
            {{"test", "#c03000", &EpochRecord::test_accuracy},
             {"train", "#0060a0", &EpochRecord::train_accuracy}}) +
      "</svg>\n";
}

} // namespace

TrainingLog::TrainingLog(const std::string& folder, int64_t epochs)
    : folder_(folder) {
  fs::create_directories(folder);
  const auto path = fs::path(folder) / "log.csv";
  if (epochs == 0 || !fs::exists(path)) {
    return;
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  bool good = line == kHeader;
  int64_t number = 1;
  while (good && std::getline(file, line)) {
    ++number;
    EpochRecord record;
    good = parse(line, record);
    if (good && record.epoch <= epochs) {
      records_.push_back(record);
    }
  }
  TORCH_CHECK(
      good,
      path.string(),
      " is no log of this program's: line ",
      number,
      " is '",
      line,
      "'; move it away");
}

void TrainingLog::add(const EpochRecord& record) {
  records_.push_back(record);
  auto csv = std::string(kHeader) + "\n";
  for (const auto& each : records_) {
    csv += line_of(each) + "\n";
  }
  replace(fs::path(folder_) / "log.csv", csv);
  replace(fs::path(folder_) / "log.svg", plot(records_));
}
