/*
 * What a run cost, in one line at its end: for demonstrations and measurements.
 */
#ifndef FLYT_CLIENT_STATS_H
#define FLYT_CLIENT_STATS_H

/* Writes the line where FLYT_STATS says (FILE, appended; or -), of a client that is connected; nothing where it is not
 * set. Never blocks on the network. */
void flyt_stats_report(void);

#endif
