#pragma once

constexpr int kOwnLauncherJob = 8;
