// SPDX-License-Identifier: Apache-2.0
// Findings: what the simulated chip has to say about its caller.
#pragma once

#include <string>

#include "common.h"
#include "config.h"

namespace chipset::sim {

// Gives the caller a text and returns the status. Not a finding: the caller did nothing wrong.
chipset_status fail(chipset_status status, const std::string& text);

// Records a finding, prints it, and answers INVALID with it. The text begins with its rule id.
chipset_status fault(const std::string& text);
// Records and prints what no status can tell, since the call is legal or long over.
void note(Severity severity, const std::string& text);

// JSON array of {severity, rule, text}.
std::string findings_json();
std::size_t finding_count();
void clear_findings();

// A tag that new allocations of this thread carry in messages.
void set_tag(const std::string& tag);
// The tag and, with option stacks, the Python frames of the caller, innermost first; or "".
std::string caller();

}  // namespace chipset::sim
