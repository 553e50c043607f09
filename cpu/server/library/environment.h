/* What the program's environment says to NVIDIA's libraries, in the server's own. */
#ifndef FLYT_SERVER_LIBRARY_ENVIRONMENT_H
#define FLYT_SERVER_LIBRARY_ENVIRONMENT_H

/* Makes room for it. Before there are other threads. */
void flyt_server_environment_reserve(void);

/* Takes it (lines NAME=VALUE, of which anything may come) before the first library is loaded: this process is that
 * program's alone. The submission thread. */
void flyt_server_environment_take(const char *lines);

#endif
