/*
 * What flyt-smi can be asked, by the names that nvidia-smi's users know, and its answers as CSV.
 */
#ifndef FLYT_NVML_SMI_QUERY_H
#define FLYT_NVML_SMI_QUERY_H

#include <stdbool.h>
#include <stdio.h>

#include "cpu/nvml/calls.h"

enum { FLYT_SMI_TEXT_BYTES = 512, FLYT_SMI_FIELDS_MAX = 256, FLYT_SMI_PROGRAMS_MAX = 4096 };

struct flyt_smi_field; /* a row of flyt_smi_query.c's tables */

enum flyt_smi_subject { FLYT_SMI_GPUS, FLYT_SMI_PROGRAMS };

struct flyt_smi_query {
    enum flyt_smi_subject subject;
    const struct flyt_smi_field *fields[FLYT_SMI_FIELDS_MAX];
    unsigned field_count;
    bool has_header, has_units;
};

/* Reads "name,name…" into the fields of the query. NULL, or the first name that there is not (in `names`' memory, which
 * is changed; "" where nothing is named). */
const char *flyt_smi_parse(char *names, struct flyt_smi_query *query);
/* One line for each name. */
void flyt_smi_print_names(enum flyt_smi_subject subject);
/* The first line; then the lines of one device. */
void flyt_smi_print_header(const struct flyt_smi_query *query);
void flyt_smi_print_device(const struct flyt_smi_query *query, flyt_nvml_device device);

/* The programs on a device, at most FLYT_SMI_PROGRAMS_MAX; returns how many. */
unsigned flyt_smi_programs(flyt_nvml_device device, struct flyt_nvml_process *ret_programs);
/* A device's answer to a field, e.g. "memory.used", in ret_text (FLYT_SMI_TEXT_BYTES): "[N/A]" where it has none. */
void flyt_smi_tell(flyt_nvml_device device, const char *field, bool has_units, char *ret_text);
void flyt_smi_tell_program(flyt_nvml_device device, const struct flyt_nvml_process *program, const char *field,
                           bool has_units, char *ret_text);

#endif
