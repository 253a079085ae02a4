# Stands in for OpenEmbedded's useradd.bbclass, which only reads what the recipe sets.
