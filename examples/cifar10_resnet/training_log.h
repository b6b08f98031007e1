#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// What is known of an epoch at its end. Accuracies are from 0 to 1.
struct EpochRecord {
  int64_t epoch = 0; ///< from 1 on
  int64_t step = 0; ///< of all epochs
  double learning_rate = 0;
  double train_loss = 0;
  double train_accuracy = 0;
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;
};

/// The course of a training: log.csv, a line for each epoch, and log.svg, the
/// losses and accuracies drawn over the epochs. One process writes it.
class TrainingLog {
 public:
  /// Goes on with the first `epochs` epochs of the log in `folder`, which is
  /// made if need be; what comes after them is dropped, since it will come
  /// again. Throws `c10::Error` where log.csv is no such log.
  TrainingLog(const std::string& folder, int64_t epochs);

  /// Writes both files anew, each as a whole. Throws `c10::Error` where it
  /// cannot.
  void add(const EpochRecord& record);

  const std::vector<EpochRecord>& records() const {
    return records_;
  }

 private:
  std::string folder_;
  std::vector<EpochRecord> records_;
};
