#pragma once

#include <tests/support/temporary_folder.h>

#include <random>

namespace ddp::test {

inline constexpr int kCifarRecord = 1 + 3 * 32 * 32;

/// The bytes of `records` records of CIFAR-10's binary format: labels 0, 1, ...
/// in turn, each with a brightness of its own, and noise.
inline std::string cifar_records(int records, unsigned seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (int i = 0; i < records; ++i) {
    const int label = i % 10;
    bytes += static_cast<char>(label);
    for (int pixel = 1; pixel < kCifarRecord; ++pixel) {
      bytes += static_cast<char>(20 * label + random() % 60);
    }
  }
  return bytes;
}

/// Writes the six files of CIFAR-10 into `folder`/cifar-10-batches-bin, with so
/// many records in each of the five to train with and in the one to test with.
inline void write_cifar(const std::string& folder, int train, int test) {
  const auto inner = std::filesystem::path(folder) / "cifar-10-batches-bin";
  std::filesystem::create_directories(inner);
  for (unsigned i = 1; i <= 5; ++i) {
    write_text(
        inner / ("data_batch_" + std::to_string(i) + ".bin"),
        cifar_records(train, i));
  }
  write_text(inner / "test_batch.bin", cifar_records(test, 6));
}

} // namespace ddp::test
