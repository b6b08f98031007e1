#pragma once

constexpr int kOwnSamplersBatchMemory = 2;
