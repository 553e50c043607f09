#ifndef FLYT_SERVER_SHARE_H
#define FLYT_SERVER_SHARE_H

struct flyt_part;

/* Shares GPUs with others: SM groups, shares of time. Installs the gate's table. */
extern const struct flyt_part flyt_share_part;

#endif
