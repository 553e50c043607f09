#ifndef FLYT_SERVER_BULK_H
#define FLYT_SERVER_BULK_H

struct flyt_part;

/* Carries bulk data: transfers, staging. */
extern const struct flyt_part flyt_bulk_part;

#endif
