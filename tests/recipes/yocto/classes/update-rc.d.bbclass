# Stands in for OpenEmbedded's update-rc.d.bbclass, which only reads what the recipe sets.
