#ifndef FLYT_SERVER_FAMILIES_H
#define FLYT_SERVER_FAMILIES_H

struct flyt_part;

/* Executes CUDA calls: memory, modules, events, … */
extern const struct flyt_part flyt_families_part;

#endif
