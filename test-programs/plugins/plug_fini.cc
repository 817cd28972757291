// A library with static objects that own memory; linked to the program, so destroyed after the program's own.
#include <map>
#include <string>
struct Registry {
    std::map<std::string, std::string> rows;
    ~Registry()
    {
        for (auto &r : rows)
            if (r.second.size() != 300)
                __builtin_trap();
        std::string late(10000, 'z');
    }
};
static Registry registry;
extern "C" void plug_add(const char *name) { registry.rows[name] = std::string(300, name[0]); }
