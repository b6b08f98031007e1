#pragma once

constexpr int kOwnTestsSupportRanks = 16;
