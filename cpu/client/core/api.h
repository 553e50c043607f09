/*
 * Marks what libflyt-client.so.1 exports to the replaced libraries. Everything exported begins with flyt_ and is listed
 * by that pattern in flyt-client.map; what a header declares without FLYT_API stays inside this library.
 */
#ifndef FLYT_CLIENT_API_H
#define FLYT_CLIENT_API_H

#define FLYT_API __attribute__((visibility("default")))

#endif
