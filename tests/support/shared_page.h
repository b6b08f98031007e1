#pragma once

#include <tests/support/catch.h>

#include <fcntl.h>
#include <sys/mman.h>

namespace ddp::test {

/// A value in shared memory, as ddprun passes it to a rank, with a descriptor
/// for child processes.
template <typename Value>
class SharedPage {
 public:
  explicit SharedPage(size_t size = sizeof(Value))
      : descriptor_(memfd_create("page", MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(descriptor_.get(), static_cast<off_t>(size)) == 0);
    REQUIRE(fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    void* memory = mmap(
        nullptr,
        sizeof(Value),
        PROT_READ | PROT_WRITE,
        MAP_SHARED,
        descriptor_.get(),
        0);
    REQUIRE(memory != MAP_FAILED);
    value_ = static_cast<Value*>(memory);
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() {
    munmap(value_, sizeof(Value));
  }

  Value& operator*() const {
    return *value_;
  }
  Value* operator->() const {
    return value_;
  }
  std::string descriptor() const {
    return std::to_string(descriptor_.get());
  }

 private:
  FileDescriptor descriptor_;
  Value* value_;
};

} // namespace ddp::test
