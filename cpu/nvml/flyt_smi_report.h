/*
 * What flyt-smi -q prints: the sections of nvidia-smi's report of which a VM knows something, and those that scripts
 * look for.
 */
#ifndef FLYT_NVML_SMI_REPORT_H
#define FLYT_NVML_SMI_REPORT_H

#include "cpu/nvml/calls.h"

/* At least one device. */
void flyt_smi_report(const flyt_nvml_device *devices, unsigned count);

#endif
