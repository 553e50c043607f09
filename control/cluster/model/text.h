/* What all files of the cluster manager use. */
#ifndef FLYT_CLUSTER_MODEL_TEXT_H
#define FLYT_CLUSTER_MODEL_TEXT_H

#include <stdint.h>

uint64_t flyt_wall_ms(void);
/* Replaces *text by a copy (NULL is allowed). 0 or -ENOMEM: then *text stays. */
int flyt_text_set(char **text, const char *value);

#endif
