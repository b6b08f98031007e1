#pragma once

constexpr int kOwnCommonText = 4;
