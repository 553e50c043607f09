/* The doctor of a cluster: what its nodes have and are to have alike, as the cluster manager tells of them. */
#include <stdlib.h>
#include <string.h>

#include "control/flytctl/doctor.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"

enum { LIBRARY_NAMES_MAX = 64 };

/* Where "cudnn 9.19" has its version; NULL: it is of another library. */
static const char *version_in(const char *text, const char *name)
{
    size_t bytes = strlen(name);

    return !strncmp(text, name, bytes) && text[bytes] == ' ' ? text + bytes + 1 : NULL;
}

/* A node's version of a library, "none" where it has others only; NULL: it has told of none at all. */
static const char *version_of(const cJSON *node, const char *name)
{
    const cJSON *libraries = cJSON_GetObjectItemCaseSensitive(node, "libraries"), *library;
    const char *found = cJSON_GetArraySize(libraries) ? "none" : NULL;

    cJSON_ArrayForEach(library, libraries)
    {
        const char *version = cJSON_IsString(library) ? version_in(library->valuestring, name) : NULL;
        if (version)
            found = version;
    }
    return found;
}

/* "13.1: node-0, node-3; 13.0: node-1", of malloc; *ret_count: how many versions there are, "none" being one. */
static char *list_versions(const cJSON *nodes, const char *name, unsigned *ret_count)
{
    char *text = flyt_text_format("%s", "");
    const cJSON *node, *other;

    *ret_count = 0;
    cJSON_ArrayForEach(node, nodes)
    {
        const char *version = version_of(node, name);
        bool is_listed = false;
        for (other = nodes->child; version && other != node; other = other->next)
            is_listed |= version_of(other, name) && !strcmp(version_of(other, name), version);
        if (!version || is_listed)
            continue;
        char *longer = flyt_text_format("%s%s%s:", text, *ret_count ? "; " : "", version);
        free(text);
        text = longer;
        const char *between = " ";
        for (other = node; other; other = other->next) {
            if (!version_of(other, name) || strcmp(version_of(other, name), version))
                continue;
            longer = flyt_text_format("%s%s%s", text, between, flyt_row_text(other, "name"));
            free(text);
            text = longer;
            between = ", ";
        }
        ++*ret_count;
    }
    return text;
}

static void compare(struct flyt_doctor *doctor, const cJSON *nodes, const char *name)
{
    unsigned count;
    char *versions = list_versions(nodes, name, &count);

    if (count > 1)
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "libraries",
                        "install the same version on all nodes: programs that have opened it move to nodes of the same "
                        "major version and no older minor one",
                        "%s differs: %s", name, versions);
    else
        flyt_doctor_say(doctor, FLYT_VERDICT_OK, "libraries", "", "%s is the same: %s", name, versions);
    free(versions);
}

/* The libraries' names, each once; `names` has LIBRARY_NAMES_MAX of room, names are of malloc. */
static unsigned list_names(const cJSON *nodes, char **names)
{
    const cJSON *node, *library;
    unsigned count = 0;

    cJSON_ArrayForEach(node, nodes)
    {
        cJSON_ArrayForEach(library, cJSON_GetObjectItemCaseSensitive(node, "libraries"))
        {
            bool is_listed = !cJSON_IsString(library) || count == LIBRARY_NAMES_MAX;
            for (unsigned i = 0; !is_listed && i < count; i++)
                is_listed = version_in(library->valuestring, names[i]) != NULL;
            if (!is_listed)
                names[count++] =
                    flyt_text_format("%.*s", (int)strcspn(library->valuestring, " "), library->valuestring);
        }
    }
    return count;
}

static void look_at_libraries(struct flyt_doctor *doctor, const cJSON *nodes)
{
    char *names[LIBRARY_NAMES_MAX];
    const cJSON *node;
    unsigned count = list_names(nodes, names);

    cJSON_ArrayForEach(node, nodes)
    {
        const cJSON *libraries = cJSON_GetObjectItemCaseSensitive(node, "libraries");
        const char *name = flyt_row_text(node, "name");
        if (!cJSON_IsArray(libraries))
            flyt_doctor_say(
                doctor, FLYT_VERDICT_WARN, "libraries",
                "is it connected, and of this build? Its programs that have opened a library can move to none "
                "that does not tell",
                "%s has not said which of NVIDIA's libraries it has", name);
        else if (!cJSON_GetArraySize(libraries))
            flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "libraries",
                            "install them, or name their folders in node.conf (libraries)",
                            "%s has none of NVIDIA's libraries", name);
    }
    for (unsigned i = 0; i < count; i++) {
        compare(doctor, nodes, names[i]);
        free(names[i]);
    }
}

enum flyt_exit flyt_doctor_cluster(struct flyt_doctor *doctor, struct flyt_ctl *ctl)
{
    struct flyt_view view;
    enum flyt_exit status = flyt_view_read(ctl, "nodes", "", &view);

    if (status != FLYT_EXIT_OK)
        return status;
    flyt_doctor_say(doctor, view.rows->child ? FLYT_VERDICT_OK : FLYT_VERDICT_WARN, "nodes",
                    view.rows->child ? "" : "start flyt-node-manager on the machines with GPUs",
                    "the cluster manager knows %d nodes", cJSON_GetArraySize(view.rows));
    look_at_libraries(doctor, view.rows);
    flyt_view_free(&view);
    return FLYT_EXIT_OK;
}
