// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace chipset::bridge {

void register_hooks();

}  // namespace chipset::bridge
